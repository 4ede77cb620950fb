# shellcheck shell=bash
# Distribution packages: those the lock names, and the host's own tools.

# What a host needs beyond its stack: to build images and to run the tests.
HOST_TOOLS=(
  buildah crun fuse-overlayfs mmdebstrap squashfs-tools squashfuse uidmap patchelf
  containernetworking-plugins netavark libseccomp2 libsqlite3-0 debian-archive-keyring git shellcheck
  openssh-client openssh-server iproute2 slurm-wlm munge chromium chromium-driver fonts-dejavu-core
)
# What of them would serve the network from the moment it is installed. The tests start
# daemons of their own, in namespaces; the machine is to have none that it had not.
SERVICES=(ssh slurmctld slurmd munge)

# The names under "system" in the lock. Read without Python, which may be missing still.
wanted_packages() {
  sed -n '/^ "system": {/,/^ }/s/^   "\([^"]*\)",\{0,1\}$/\1/p' "$LOCK"
  printf '%s\n' "${HOST_TOOLS[@]}"
}

# One line for each wanted package that is installed: "NAME VERSION".
package_state() {
  local names
  mapfile -t names < <(wanted_packages | sort -u)
  # hwloc is hwloc-nox with a display: either will do.
  # It ends with 1 where a name is unknown to it, which is no error here.
  { dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' "${names[@]}" hwloc 2>/dev/null || true; } |
    sed -n 's/^installed //p' | sort -u
}

missing_packages() {
  local there
  there=$(package_state | cut -d' ' -f1)
  if grep -qx hwloc <<<"$there"; then there+=$'\nhwloc-nox'; fi
  wanted_packages | sort -u | grep -vxF -f <(echo "$there") || true
}

ensure_system_packages() {
  local missing
  missing=$(missing_packages)
  [[ -n $missing ]] || return 0
  mapfile -t MISSING <<<"$missing"
  if ! can_be_root; then
    fail 1 "these system packages: ${MISSING[*]}" \
      "they are missing, and there is neither root nor sudo here" \
      "ask an administrator for: apt-get update && apt-get install --no-install-recommends ${MISSING[*]}"
  fi
  run_logged "$HOME_DIR/logs/system.log" install_packages "${#MISSING[@]} system packages by apt"
}

install_packages() {
  # sudo drops the environment: what leads to the mirror is named.
  local apt=(
    env DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"}
    ${https_proxy:+"https_proxy=$https_proxy"} apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=2)
  finish_dpkg
  as_root "${apt[@]}" update
  hold_services
  as_root "${apt[@]}" install -y --no-install-recommends "${MISSING[@]}" || { release_services; return 1; }
  release_services
}

# Debian starts a service as soon as it is installed, unless this file says no; systemd would
# start it at the next boot. A service that was there before is left as it was.
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK="there while env/bootstrap.sh installs packages"
hold_services() {
  local unit
  HELD=()
  for unit in "${SERVICES[@]}"; do
    [[ -e /lib/systemd/system/$unit.service || -e /etc/init.d/$unit ]] || HELD+=("$unit")
  done
  [[ ! -e $POLICY ]] || return 0
  printf '#!/bin/sh\n# %s\nexit 101\n' "$POLICY_MARK" | as_root tee "$POLICY" >/dev/null
  as_root chmod 755 "$POLICY"
}

release_services() {
  local unit
  # By its mark, so that one that a killed run has left goes too.
  if grep -qs "$POLICY_MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi
  command -v systemctl >/dev/null || return 0
  for unit in "${HELD[@]}"; do
    as_root systemctl disable "$unit" >/dev/null 2>&1 || true
  done
}

# An interrupted run leaves dpkg half way, or still at work without its apt: wait for
# it, then end what it began (apt refuses to do anything before).
finish_dpkg() {
  local said try
  for try in {1..120}; do
    if said=$(as_root dpkg --configure -a 2>&1); then return 0; fi
    echo "$said"
    grep -q 'lock' <<<"$said" || return 1
    echo "dpkg is at work elsewhere; waiting (try $try)"
    sleep 5
  done
  return 1
}
