# Sourced by the script suites, which are run in the root of the tree. One check is one line on stdout: "ok -
# NAME", "not ok - NAME" or "skip - NAME: reason". A check that fails returns 1 and the script goes on.
# Nothing sleeps for a fixed time: wait_until polls a condition against a deadline.
set -u
BUILD=${BUILD:-$PWD/build}
BIN=$BUILD/bin
FSDPRUN=${FSDPRUN:-$BIN/fsdprun} # that of another build, for example
TOY=$BUILD/test
WORK=$(mktemp -d "${TMPDIR:-/tmp}/fsdp-test.XXXXXX")
SOURCE=$PWD
export BUILD
n_failed=0
at_exit() { :; }
# A script needs no last line of its own: it ends with 1 if a check has failed.
finish() {
  local status=$?
  at_exit
  rm -rf "$WORK"
  [ "$status" -ne 0 ] || [ "$n_failed" -eq 0 ] || exit 1
}
trap finish EXIT

ok() { echo "ok - $1"; }
not_ok() {
  echo "not ok - $1"
  shift
  for line in "$@"; do
    printf '# %s\n' "$line"
  done
  n_failed=$((n_failed + 1))
  return 1
}
skip() { echo "skip - $1: $2"; }

# check NAME COMMAND...: passes when the command ends with 0; its output is shown when it does not.
check() {
  local name=$1 out; shift
  if out=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "\$ $*" "$(printf '%s' "$out" | tail -n 20)"; fi
}
# check_eq NAME WANT GOT
check_eq() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "want: $2" "got:  $3"; fi; }
# check_match NAME REGEX TEXT
check_match() {
  if printf '%s' "$3" | grep -qE -- "$2"; then
    ok "$1"
  else
    not_ok "$1" "want: $2" "got:  $(printf '%s' "$3" | tail -n 20)"
  fi
}
# check_status NAME WANT COMMAND...: exit status; stdout and stderr are left in $WORK/out and $WORK/err.
check_status() {
  local name=$1 want=$2 got; shift 2
  "$@" > "$WORK/out" 2> "$WORK/err"; got=$?
  if [ "$got" = "$want" ]; then ok "$name"; else not_ok "$name" "\$ $*" "want exit $want, got $got" "$(tail -n 10 "$WORK/err")"; fi
}
# begin_check NAME COMMAND...: a check that runs while the script goes on; for what mostly waits. end_checks says how
# they went, in the order in which they were begun.
checks=()
begin_check() {
  check "$@" > "$WORK/check.${#checks[@]}" &
  checks+=($!)
}
end_checks() {
  local i
  for i in "${!checks[@]}"; do
    wait "${checks[i]}" || n_failed=$((n_failed + 1))
    cat "$WORK/check.$i"
  done
  checks=()
}
# No test depends on how fast the machine is. Deadlines are watchdogs: they end a test that hangs, and are so
# late that a machine ten times slower than ours, busy with something else, keeps them.
# wait_until SECONDS COMMAND...: true as soon as the command is; false after the deadline, ten times as long.
wait_until() { local seconds=$1; shift; wait_at_most $((seconds * 10)) "$@"; }
# wait_at_most SECONDS COMMAND...: the same, and no longer: for the tests in which the time is to pass.
wait_at_most() {
  local deadline=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000)); shift
  until "$@" > /dev/null 2>&1; do
    [ "${EPOCHREALTIME/[.,]/}" -lt "$deadline" ] || return 1
    read -r -t 0.02 <> <(:) || : # opened for writing too, it is never at its end: this waits
  done
}
# pace: how slow this machine is now: 1 where one worker is launched and reaped in 100 ms, else how many times
# that it takes.
# For what is in seconds all the same: the time-outs of the product that a test sets, and promises about its
# own waits.
pace() {
  local began; began=$(date +%s%N)
  "$BIN/fsdprun" -- "$TOY/toy" exit=0 > /dev/null 2>&1
  echo $((1 + ($(date +%s%N) - began) / 100000000))
}
# in_good_time LIMIT_MS TOOK_MS: was a promise about our own waits kept? Where it was not, the limit is longer
# on a machine that is slow now, by as much as it takes longer to launch a worker.
in_good_time() { [ "$2" -lt "$1" ] || [ "$2" -lt $(($1 * $(pace))) ]; }
# port_block: the first of 100 TCP ports in a row for this script: no other script on this machine is given
# them while it runs, and the kernel gives none of them out by itself. Nor does fsdprun choose one under Slurm
# (launcher/slurm.h), as the daemons of a test's Slurm have such ports too. Each call takes another block.
port_block() {
  local folder=/tmp/fsdp-test-ports-$(id -u)
  mkdir -p "$folder" && flock "$folder" bash -c '
    for ((i = 0, block = $1 % 100; i < 100; i++, block = (block + 1) % 100)); do
      owner=$(cat "$0/$block" 2> /dev/null)
      [ -n "$owner" ] && [ -d "/proc/$owner" ] && continue
      echo "$1" > "$0/$block"; echo $((10000 + 100 * block)); exit
    done' "$folder" $$
}
# alive PATTERN: are there processes (no zombies) whose command line matches?
alive() {
  local p
  for p in $(pgrep -f -- "$1"); do
    [ "$p" != $$ ] && [ "$(awk '/^State/ {print $2}' "/proc/$p/status" 2>/dev/null)" != Z ] && [ -e "/proc/$p" ] && return 0
  done
  return 1
}
none_alive() { ! alive "$1"; }
