# shellcheck shell=bash
# Apptainer for a host that has none. Debian 12 and 13 do not carry it, sid does. apt
# itself fetches it, with private folders: sid's signed InRelease, then the index it
# names, then the package are verified, and this machine's own sources stay untouched.
# Apptainer finds its files from where its binary lies, so no root is needed.

has_container_engine() { command -v apptainer >/dev/null || command -v singularity >/dev/null; }

# Sets CONTAINER_BIN: the folder to put on PATH, empty where the host has an engine.
ensure_apptainer() {
  CONTAINER_BIN=
  if has_container_engine; then return 0; fi
  APPTAINER=$HOME_DIR/apptainer/$(sha256sum <"$PROJECT/env/bootstrap/apptainer.sh" | cut -c1-16)
  # shellcheck disable=SC2034 # read by env/bootstrap.sh
  CONTAINER_BIN=$APPTAINER/usr/bin
  [[ -e $APPTAINER/.complete ]] ||
    run_logged "$HOME_DIR/logs/apptainer.log" install_apptainer "Apptainer, from Debian sid's signed archive"
  ensure_subids
  note_closed_fuse
}

install_apptainer() {
  local work=$HOME_DIR/build/apptainer
  rm -rf "$work" "$APPTAINER" && mkdir -p "$work" "${APPTAINER%/*}"
  fetch_from_sid "$work" apptainer
  dpkg-deb -x "$work"/apptainer_*.deb "$work/root"
  # Where a moved apptainer looks for its etc and var: beside bin, and its starter, which
  # lies one folder deeper in Debian than upstream thinks, below lib.
  mv "$work/root/etc" "$work/root/usr/etc"
  mkdir -p "$work/root/usr/var/lib/apptainer/mnt/session"
  ln -s ../etc "$work/root/usr/lib/etc"
  ln -s ../var "$work/root/usr/lib/var"
  ln -s apptainer "$work/root/usr/bin/singularity"
  limit_capabilities "$work/root/usr/etc/apptainer/apptainer.conf"
  mv -T "$work/root" "$APPTAINER"
  if ! "$APPTAINER/usr/bin/apptainer" --version; then
    # Debian 12: sid's build wants a newer glibc than this. It gets sid's, for itself only.
    fetch_from_sid "$work" libc6
    dpkg-deb -x "$work"/libc6_*.deb "$work/glibc"
    mv -T "$work/glibc/usr/lib/x86_64-linux-gnu" "$APPTAINER/glibc"
    point_at_glibc "$APPTAINER/glibc" "$APPTAINER/usr/bin/apptainer" \
      "$APPTAINER/usr/lib/x86_64-linux-gnu/apptainer/bin/starter"
    "$APPTAINER/usr/bin/apptainer" --version
  fi
  rm -rf "$work"
  touch "$APPTAINER/.complete"
}

# fetch_from_sid FOLDER PACKAGE: leaves PACKAGE_*.deb in FOLDER.
fetch_from_sid() {
  local folder=$1 package=$2 apt=$1/apt options
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  : >"$apt/status"
  echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "$(debian_mirror) sid main" >"$apt/sources.list"
  options=(
    -q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
    -o Dir::State="$apt" -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status"
    -o Dir::Cache="$apt" -o APT::Sandbox::User= -o APT::Update::Error-Mode=any
    -o Acquire::Languages=none -o Acquire::Retries=2 -o APT::Update::Post-Invoke-Success=
    -o APT::Update::Post-Invoke=
  )
  if ! apt-get "${options[@]}" update; then
    echo "Trying once more without the index's expiry date: a mirror that lags behind serves an"
    echo "older index, signed all the same."
    options+=(-o Acquire::Check-Valid-Until=false)
    apt-get "${options[@]}" update
  fi
  (cd "$folder" && apt-get "${options[@]}" download "$package")
}

# Where this host takes Debian from, so that a site's mirror is asked and nothing else.
debian_mirror() {
  local mirror=${CHEXNET_DEBIAN_MIRROR:-}
  [[ -n $mirror ]] || mirror=$(
    # shellcheck disable=SC2016 # apt fills these in
    apt-get indextargets --format '$(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
      sed -n 's/^main \(.*debian\/\{0,1\}\)$/\1/p' | head -n 1
  )
  [[ -n $mirror ]] || { echo "No mirror of Debian in apt's sources: set CHEXNET_DEBIAN_MIRROR" >&2; return 1; }
  echo "$mirror"
}

# point_at_glibc FOLDER BINARY…: run the binaries with the glibc in FOLDER.
point_at_glibc() {
  local glibc=$1 binary
  shift
  for binary in "$@"; do
    patchelf --set-interpreter "$glibc/ld-linux-x86-64.so.2" --force-rpath \
      --set-rpath "$glibc:/lib/x86_64-linux-gnu" "$binary"
  done
}

# Without CAP_SYS_RESOURCE (bit 24; common inside containers) root cannot grant a container
# the full set, and every exec would end with "Requesting capability set".
limit_capabilities() {
  local held
  held=$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)
  (((0x$held >> 24) & 1)) || sed -i 's/^root default capabilities = .*/root default capabilities = no/' "$1"
}

# The first id above everybody's range: two users must never share one.
free_subid() { awk -F: '$2 + $3 > next_id { next_id = $2 + $3 } END { print next_id > 100000 ? next_id : 100000 }' "$1" 2>/dev/null || echo 100000; }

# Builds as a fake root need a range of subordinate ids; Debian gives one to each new
# user, but not to root.
ensure_subids() {
  local user file
  user=$(id -un)
  for file in /etc/subuid /etc/subgid; do
    if ! grep -qE "^($user|$(id -u)):" "$file" 2>/dev/null; then
      if can_be_root; then
        echo "$user:$(free_subid "$file"):65536" | as_root tee -a "$file" >/dev/null
      else
        say "note: no entry for $user in $file, so building images here will fail;" \
          "an administrator can add the line $user:$(free_subid "$file"):65536"
      fi
    fi
  done
}

# Images are mounted through FUSE; Debian opens its device to all, some containers do not.
note_closed_fuse() {
  if [[ ! -e /dev/fuse ]]; then
    say "note: no /dev/fuse here: an ordinary user's containers are unpacked at each start"
  elif [[ $(stat -c %a /dev/fuse) != 666 ]]; then
    say "note: /dev/fuse is closed to ordinary users, who could not run an image here;" \
      "to open it: chmod 666 /dev/fuse"
  fi
}
