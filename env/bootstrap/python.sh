# shellcheck shell=bash
# The virtual environment, held to the lock's hashes, and Horovod's wheel, compiled
# against it. Environments are named by a hash of what is in them and never changed
# once complete; one without its stamp is removed and made anew.

check_python() {
  local wanted found
  wanted=$(sed -n 's/^  "python": "\(.*\)",\{0,1\}$/\1/p' "$LOCK")
  found=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none)
  [[ $found == "$wanted" ]] ||
    fail 2 "Python $wanted, which the stack $STACK is locked for" "$PYTHON is Python $found" \
      "set CHEXNET_PYTHON to this distribution's own python3"
}

# Every input of Horovod's build, one a line; its hash names the wheel. A wheel built
# against another TensorFlow loads with an undefined symbol, and pip's own cache would
# hand it out: hence a cache of our own, and all of this in its key.
horovod_inputs() {
  local rules interpreter mpi compiler
  rules=$PROJECT/$(lock_get edits | sed -n 's/^path=//p')
  interpreter=$("$PYTHON" -c 'import sys, sysconfig; print(sys.version, sysconfig.get_config_var("SOABI"))' |
    tr '\n' ' ')
  mpi="$(command -v mpicxx) $(mpicxx --showme:version 2>&1)"
  compiler="$(command -v g++) $(g++ --version | sed -n 1p)"
  requirements run | grep -E '^(tensorflow|keras|numpy)[^=]*=='
  requirements build
  lock_get sources
  lock_get flags
  sha256sum <"$rules" | sed 's/^/edits /'
  sha256sum <"$PROJECT/env/source_edits.py" | sed 's/^/editor /'
  printf 'python %s\nopenmpi %s\ncompiler %s\n' "$interpreter" "$mpi" "$compiler"
  printf 'machine %s %s\n' "$(uname -m)" "$(getconf GNU_LIBC_VERSION)"
}

ensure_python_packages() {
  requirements build run develop >"$HOME_DIR/build/requirements.txt" ||
    fail 1 "a readable lock" "$LOCK" "restore it: git checkout $LOCK"
  strictly horovod_inputs >"$HOME_DIR/build/horovod-inputs.txt"
  [[ $STATUS -eq 0 ]] ||
    fail 1 "Horovod's build inputs" "mpicxx, g++, Python or the lock could not be read (above)" \
      "make 'mpicxx --showme:version' and 'g++ --version' work, then run this again"
  HOROVOD_KEY=$(sha256sum <"$HOME_DIR/build/horovod-inputs.txt" | cut -c1-16)
  VENV_KEY=$(cat "$HOME_DIR/build/requirements.txt" <(echo "$PYTHON $HOROVOD_KEY") | sha256sum | cut -c1-16)
  VENV=$HOME_DIR/venvs/$STACK-$VENV_KEY
  [[ ! -e $VENV/.complete ]] || return 0
  [[ -e $VENV/.packages ]] ||
    run_logged "$HOME_DIR/logs/packages.log" install_python_packages \
      "$(wc -l <"$HOME_DIR/build/requirements.txt") Python packages, held to their hashes"
}

# pip with the user's way to the index, but none of the settings that change what or where.
pip_in_venv() {
  env -u PIP_CONSTRAINT -u PIP_TARGET -u PIP_PREFIX -u PIP_USER -u PIP_NO_BINARY -u PIP_ONLY_BINARY \
    -u PIP_NO_DEPS -u PIP_REQUIRE_VIRTUALENV -u PYTHONHOME -u PYTHONPATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR="$HOME_DIR/cache/pip" PIP_NO_INPUT=1 \
    PATH="$VENV/bin:$PATH" "$VENV/bin/python" -m pip "$@"
}

install_python_packages() {
  rm -rf "$VENV"
  mkdir -p "$HOME_DIR/venvs"
  "$PYTHON" -s -m venv "$VENV"
  pip_in_venv install --require-hashes --only-binary :all: --no-deps -r "$HOME_DIR/build/requirements.txt"
  touch "$VENV/.packages"
}

ensure_horovod() {
  [[ ! -e $VENV/.complete ]] || return 0
  WHEELS=$HOME_DIR/cache/horovod/$HOROVOD_KEY
  [[ -d $WHEELS ]] ||
    run_logged "$HOME_DIR/logs/horovod.log" build_horovod "Horovod, compiled for this TensorFlow and OpenMPI"
  run_logged "$HOME_DIR/logs/horovod-install.log" install_horovod "Horovod, installed and loaded once"
}

# Variables that a compiler, an MPI wrapper or CMake would listen to.
BUILD_VARIABLES='^(HOROVOD_|CMAKE_|OMPI_|OPAL_|MPI_|(C|CPLUS)_INCLUDE_PATH$|CPATH$|(LD_)?LIBRARY_PATH$|C(XX|PP)?FLAGS$|LDFLAGS$|MAKEFLAGS$)'

build_horovod() {
  local work=$HOME_DIR/build/horovod archive sha256 flag
  rm -rf "$work" && mkdir -p "$work/source" "$work/wheel"
  IFS='=' read -r archive sha256 < <(lock_get sources)
  echo "${archive%.tar.gz} --hash=sha256:$sha256" | sed 's/-\([0-9]\)/==\1/' >"$work/source.txt"
  pip_in_venv download --no-deps --no-build-isolation --no-binary horovod --require-hashes \
    -d "$work" -r "$work/source.txt"
  echo "$sha256  $work/$archive" | sha256sum -c -
  tar -xzf "$work/$archive" -C "$work/source" --strip-components=1 --no-same-owner
  "$PYTHON" -I "$PROJECT/env/source_edits.py" --source "$work/source" \
    --rules "$PROJECT/$(lock_get edits | sed -n 's/^path=//p')"
  # Only the lock's flags reach the build: whatever the caller has set is not in the key.
  for flag in $(compgen -e | grep -E "$BUILD_VARIABLES"); do
    unset "$flag"
  done
  while read -r flag; do export "${flag?}"; done < <(lock_get flags)
  export CC=gcc CXX=g++
  pip_in_venv wheel --verbose --no-deps --no-build-isolation --no-cache-dir -w "$work/wheel" "$work/source"
  cp "$HOME_DIR/build/horovod-inputs.txt" "$work/wheel/inputs.txt"
  mkdir -p "$HOME_DIR/cache/horovod"
  mv -T "$work/wheel" "$WHEELS"
  rm -rf "$work"
}

install_horovod() {
  pip_in_venv install --no-deps --no-index --no-cache-dir --force-reinstall "$WHEELS"/horovod-*.whl
  pip_in_venv check
  # From / since a folder that holds a horovod source tree would be imported instead.
  (cd / && env -u PYTHONPATH -u PYTHONHOME "$VENV/bin/python" -c \
    'import horovod.tensorflow as hvd; assert hvd.mpi_built(), "built without MPI"')
  touch "$VENV/.complete"
}
