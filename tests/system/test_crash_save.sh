# One save is recorded with strace; then one run for each (system call, k-th occurrence) of it, killed there.
# After each, recovery gives the old step or the new one, bit-exact, and the next save works. Calls that
# change something are all taken here; with FSDP_NIGHTLY=1 every call, a first save as well, and an error from
# each call in place of the kill.
. tests/support/shell/harness.sh
SAVE=$TOY/crash_save
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # LeakSanitizer cannot look while strace does
if ! strace -o "$WORK/probe" true 2> /dev/null; then
  skip "a save killed at every system call" "strace is not there, or may not trace"
  exit 0
fi
changing='^(openat|pwrite64|fallocate|ftruncate|fsync|rename|renameat2|mkdir|unlink|rmdir|write)$'

# pairs LOG: "NAME K" of each call between the two marks, K counted from the start of the process, as strace's
# when=.
pairs() {
  awk '{ name = $2; sub(/\(.*/, "", name); k[name]++ }
       /crash-save-begins/ { on = 1; next } /crash-save-ends/ { exit }
       on && name !~ /^(brk|mmap|munmap)$/ { print name, k[name] }' "$1" # malloc's own calls move from run to run
}

# start_state DIR OLD: a directory with the old step, or none
start_state() { rm -rf "$1"; mkdir -p "$1"; [ "$2" = none ] || "$SAVE" save "$1/c" "$2" 0 > /dev/null; }

# after DIR OLD SAID: recovery finds OLD or 50 (50 if the save had said that it was done), and saves again
after() {
  local found again
  found=$("$SAVE" check "$1/c" 2>&1) || { echo "recovery: $found"; return 1; }
  if [ "$found" != 50 ] && { [ "$found" != "$2" ] || [ -n "$3" ]; }; then echo "found $found, said: $3"; return 1; fi
  again=$("$SAVE" save "$1/c" 60 0 2>&1 && "$SAVE" check "$1/c" 2>&1) || { echo "the next save: $again"; return 1; }
  [ "$(tail -n 1 <<< "$again")" = 60 ] || { echo "the next save: $again"; return 1; }
}

# campaign TITLE OLD INJECTION FILTER: every pair whose call matches FILTER
campaign() {
  local title=$1 old=$2 injection=$3 filter=$4 name k n=0 wrong=0 reached=0 said why list=
  start_state "$WORK/start" "$old"
  rm -rf "$WORK/record" && cp -r "$WORK/start" "$WORK/record"
  # Into a pipe, as below: what the C library asks of its output must be the same.
  said=$(strace -f -o "$WORK/log" "$SAVE" save "$WORK/record/c" 50 1) || { not_ok "$title: the recording"; return; }
  while read -r name k; do
    [[ $name =~ $filter ]] || continue
    rm -rf "$WORK/run" && cp -r "$WORK/start" "$WORK/run"
    said=$(strace -f -o "$WORK/killed" -e "inject=$name:$injection:when=$k" "$SAVE" save "$WORK/run/c" 50 1 2> /dev/null)
    n=$((n + 1))
    if grep -qE 'killed by SIGKILL|\(INJECTED\)' "$WORK/killed"; then reached=$((reached + 1)); list="$list $name:$k"
    else echo "# $name:$k was not reached"; fi
    if ! why=$(after "$WORK/run" "$old" "$said"); then
      wrong=$((wrong + 1)); echo "# $name:$k: $why"
    fi
  done < <(pairs "$WORK/log")
  echo "# $title: $reached of $n pairs reached:$list"
  if [ "$n" -gt 20 ] && [ "$reached" -eq "$n" ] && [ "$wrong" -eq 0 ]; then ok "$title ($n pairs)"
  else not_ok "$title" "$wrong of $n wrong, $reached reached"; fi
}

campaign "killed at each call of a save that changes something, old or new is there" 40 signal=KILL "$changing"
if [ -n "${FSDP_NIGHTLY:-}" ]; then
  campaign "killed at any call of a save, old or new is there" 40 signal=KILL '.'
  campaign "killed at any call of a first save, it or nothing is there" none signal=KILL '.'
  campaign "killed at any call of saving a step again, one of both is there" 50 signal=KILL '.'
  campaign "an I/O error from each call of a save" 40 error=EIO "$changing"
  campaign "a full disk at each call of a save" 40 error=ENOSPC "$changing"
fi
