#!/usr/bin/env bash
# Sets a bare Debian 12 or 13 up once, then runs a command in the environment.
#
# Knows the order of the steps and what "nothing to do" means. Each step lives in
# env/bootstrap/: common.sh (telling, logs, root), system.sh (distribution
# packages), python.sh (virtual environment, Horovod), apptainer.sh. Versions are not
# written here: they come from the lock of the host's stack.
set -euo pipefail
CALLERS_UMASK=$(umask)
umask 022 # what is set up here is for every user of the machine

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=env/bootstrap/common.sh
source "$PROJECT/env/bootstrap/common.sh"
# shellcheck source=env/bootstrap/system.sh
source "$PROJECT/env/bootstrap/system.sh"
# shellcheck source=env/bootstrap/python.sh
source "$PROJECT/env/bootstrap/python.sh"
# shellcheck source=env/bootstrap/apptainer.sh
source "$PROJECT/env/bootstrap/apptainer.sh"

help_text() {
  cat <<'TEXT'
usage: env/bootstrap.sh [CMD …]

Sets this machine up once (Debian 12 or 13, x86_64), then runs CMD in the environment,
from the folder you are in. Without CMD it says where things lie.

  env/bootstrap.sh invoke demo     sample data, validation, training, evaluation
  env/bootstrap.sh pytest          the tests
  env/bootstrap.sh bash            a shell in the environment

What it brings
  system packages   OpenMPI, compilers, hwloc, numactl, squashfuse, buildah, mmdebstrap …
                    by apt: needs root or sudo, and only where one is missing
  apptainer         unpacked privately from Debian sid's signed archive, unless an
                    apptainer or singularity is on PATH already
  Python packages   a virtual environment held to the hashes of
                    containers/<stack>/stack.lock.json
  Horovod           compiled once against the locked TensorFlow and this machine's OpenMPI;
                    the wheel is kept under a key of every input of that build

Where: everything but the system packages lies in one folder, which may be deleted
to start over: $CHEXNET_HOME, else /opt/chexnet-host (root) or
~/.local/share/chexnet. It may be run again after any interruption; a second run at
the same time waits for the first; when all is there it takes well under 2 s.

Variables
  CHEXNET_HOME       the folder named above
  CHEXNET_PYTHON     the Python to use (default /usr/bin/python3); its version must be the stack's
  CHEXNET_DEBIAN_MIRROR
                     where Debian sid is, if apt's own mirror does not have it
  PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT, SSL_CERT_FILE, http_proxy, https_proxy
                     your mirror, certificates and proxy, as pip and apt know them;
                     what is installed is decided by hashes, not by them

Exit codes: CMD's own; 1 a step failed (its log is named); 2 wrong use or a machine
that is not supported.
TEXT
}

main() {
  case ${1:-} in
    -h | --help) help_text; exit 0 ;;
    -*) fail 2 "a command to run" "the option '$1'" "see: env/bootstrap.sh --help" ;;
  esac
  read_host
  is_ready || set_up
  enter_environment
  if [[ $# -eq 0 ]]; then
    tell_where
    exit 0
  fi
  command -v "$1" >/dev/null || fail 2 "a command of the environment" "'$1' is not on PATH" \
    "see: env/bootstrap.sh --help"
  exec "$@"
}

# Which stack this host gets. The catalogue says the same; a test compares them.
read_host() {
  local file=${CHEXNET_OS_RELEASE:-/etc/os-release} release name
  release=$(sed -n 's/^\(ID\|VERSION_ID\)=//p' "$file" 2>/dev/null | tr -d '"' | sort -r | tr '\n' ' ') || true
  name=$(sed -n 's/^PRETTY_NAME=//p' "$file" 2>/dev/null) || true
  case $release in
    "debian 12 ") STACK=cpu ;;
    "debian 13 ") STACK=cpu13 ;;
    *) fail 2 "Debian 12 or 13" "${name:-a system of no known name} ($file)" \
      "run this in such a machine or container, or use an image: invoke build-image" ;;
  esac
  [[ $(uname -m) == x86_64 ]] ||
    fail 2 "an x86_64 machine" "$(uname -m)" "use one: the stacks hold x86_64 wheels only"
  LOCK=$PROJECT/containers/$STACK/stack.lock.json
  PYTHON=${CHEXNET_PYTHON:-/usr/bin/python3}
  HOME_DIR=${CHEXNET_HOME:-}
  if [[ -z $HOME_DIR ]]; then
    # What root has set up serves every user of the machine, as long as it is complete.
    HOME_DIR=/opt/chexnet-host
    [[ $EUID -eq 0 ]] || is_ready || HOME_DIR=$HOME/.local/share/chexnet
  fi
  export CHEXNET_HOME=$HOME_DIR
}

# Ready: a run with these very scripts, lock and edits ended well, and none of the system
# packages it saw has changed since. `ready/KEY` holds the environment's path, then them.
is_ready() {
  local file
  READY_KEY=$(cat "$LOCK" "$PROJECT"/env/edits/*.toml "$PROJECT"/env/source_edits.py \
    "$PROJECT"/env/bootstrap.sh "$PROJECT"/env/bootstrap/*.sh <(echo "$PYTHON $STACK") |
    sha256sum | cut -c1-16)
  file=$HOME_DIR/ready/$READY_KEY
  [[ -r $file ]] || return 1
  { read -r VENV && read -r CONTAINER_BIN; } <"$file" || return 1
  [[ -x $VENV/bin/python ]] || return 1
  [[ -z $CONTAINER_BIN || -x $CONTAINER_BIN/apptainer ]] || return 1
  [[ -n $CONTAINER_BIN ]] || has_container_engine || return 1
  [[ $(tail -n +3 "$file") == "$(package_state)" ]]
}

set_up() {
  mkdir -p "$HOME_DIR"/{logs,ready,cache} 2>/dev/null ||
    fail 1 "a folder to set up in" "$HOME_DIR cannot be written" "set CHEXNET_HOME to another folder"
  [[ -w $HOME_DIR/ready ]] || fail 1 "an environment for this checkout in $HOME_DIR" \
    "none, and $(id -un) may not write there" "ask its owner to run this, or set CHEXNET_HOME to another folder"
  exec 9>"$HOME_DIR/lock"
  if ! flock -n 9; then
    say "another set-up is running in $HOME_DIR; waiting for it"
    flock 9
    if is_ready; then exec 9>&-; return; fi
  fi
  mkdir -p "$HOME_DIR/build" # only now: a run that ended just before has removed it
  say "setting up stack $STACK in $HOME_DIR"
  ensure_system_packages
  check_python
  ensure_apptainer
  ensure_python_packages
  ensure_horovod
  { printf '%s\n%s\n' "$VENV" "$CONTAINER_BIN"; package_state; } | write_file "$HOME_DIR/ready/$READY_KEY"
  rm -rf "$HOME_DIR/build"
  say "ready after $SECONDS s"
  exec 9>&-
}

enter_environment() {
  PATH=$PROJECT/env/bootstrap/bin:$VENV/bin${CONTAINER_BIN:+:$CONTAINER_BIN}:$PATH
  PYTHONPATH=$PROJECT
  CHEXNET_VENV=$VENV
  unset PYTHONHOME
  export PATH PYTHONPATH CHEXNET_VENV
  umask "$CALLERS_UMASK"
}

tell_where() {
  cat <<TEXT
stack        $STACK ($LOCK)
folder       $HOME_DIR
environment  $VENV
containers   $(command -v apptainer || command -v singularity)
next         env/bootstrap.sh invoke --list
TEXT
}

# Sourced, it only defines: that is how the tests reach single functions.
[[ ${BASH_SOURCE[0]} != "$0" ]] || main "$@"
