# shellcheck shell=bash
# How bootstrap tells and logs, and how it becomes root. Sourced by env/bootstrap.sh, which
# sets HOME_DIR, PROJECT and STACK. Knows nothing about what the steps do.

say() { printf 'bootstrap: %s\n' "$*" >&2; }

# fail EXIT_CODE EXPECTED FOUND FIX: the project's one message form.
fail() {
  printf 'expected: %s\nfound:    %s\nfix:      %s\n' "$2" "$3" "$4" >&2
  exit "$1"
}

# write_file PATH: standard input becomes the file at once, so that it is whole or absent.
write_file() {
  cat >"$1.new.$$"
  mv -f "$1.new.$$" "$1"
}

# run_logged LOG FUNCTION WHAT: run it with its output in LOG, telling the time it takes.
run_logged() {
  local log=$1 function=$2 what=$3 began=$SECONDS ticker status
  say "$what …"
  tick "$what" "$began" &
  ticker=$!
  strictly "$function" >"$log" 2>&1 </dev/null
  status=$STATUS
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  if [[ $status -ne 0 ]]; then
    printf -- '---- last lines of %s\n' "$log" >&2
    tail -n 15 "$log" >&2
    printf -- '----\n' >&2
    fail 1 "$what" "failed after $((SECONDS - began)) s (log: $log)" "$(advice "$log")"
  fi
  say "$what: done in $((SECONDS - began)) s"
}

# strictly FUNCTION: run it so that its first failing command ends it; the outcome is in
# STATUS. bash ignores `set -e` in all that stands before || or after if: never call this there.
strictly() {
  set +e
  (
    set -e
    "$@"
  )
  STATUS=$?
  set -e
}

# On a terminal the seconds run; elsewhere a line every 30 s shows that it lives.
tick() {
  local bootstrap=$$ pause=30
  exec 9>&-
  [[ ! -t 2 ]] || pause=1
  # sleep outlives this shell when that is killed, and must not keep the caller's pipe open.
  while sleep "$pause" >/dev/null 2>&1 && kill -0 "$bootstrap" 2>/dev/null; do
    if [[ -t 2 ]]; then
      printf '\r\033[Kbootstrap: %s … %d s' "$1" "$((SECONDS - $2))" >&2
    else
      say "$1 … $((SECONDS - $2)) s"
    fi
  done
}

# What to do about a failed step, from its log.
advice() {
  if grep -qiE 'certificate.?verify.?failed|self.signed certificate' "$1"; then
    echo "name your site's authority: SSL_CERT_FILE=FILE PIP_CERT=FILE env/bootstrap.sh"
  elif grep -qiE 'could not resolve|name resolution|temporary failure|unreachable|connection (refused|timed out|failed)|failed to establish|max retries|from versions: none' "$1"; then
    cat <<TEXT
this machine reaches no index. Needed once: a Debian mirror (apt) and PyPI (pip).
          With a proxy: http_proxy=… https_proxy=… ; with mirrors: edit /etc/apt/sources.list,
          PIP_INDEX_URL=… . Without any: on a connected machine of the same distribution
          'pip download -d WHEELS -r requirements.txt' with the output of
          'python3 -m env.lock requirements --stack $STACK --group build --group run --group develop',
          and the archive of Horovod named by 'python3 -m env.lock get --stack $STACK sources';
          then here: PIP_NO_INDEX=1 PIP_FIND_LINKS=WHEELS env/bootstrap.sh
TEXT
  else
    echo "read the log; after a remedy run this again: it goes on where it stopped"
  fi
}

# as_root CMD…: as it is for root, by sudo otherwise.
as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

# can_be_root: root, or sudo that answers; asks for the password where there is a terminal.
can_be_root() {
  [[ $EUID -eq 0 ]] && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }
}

lock_get() { PYTHONPATH=$PROJECT "$PYTHON" -s -m env.lock get --lock "$LOCK" "$1"; }

requirements() { # GROUP…
  local groups=() group
  for group in "$@"; do groups+=(--group "$group"); done
  PYTHONPATH=$PROJECT "$PYTHON" -s -m env.lock requirements --lock "$LOCK" "${groups[@]}"
}
