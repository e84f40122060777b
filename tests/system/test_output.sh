#!/usr/bin/env bash
# What workers write: to its file first, to the console as fast as that goes, and nobody ever waits for a terminal.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
F=$BIN/fsdprun
mounted=
at_exit() { exec 9<&-; [ -z "$mounted" ] || umount "$mounted"; }

log_of() { echo "$1"/*/attempt_0/"$2"/"$3".log; } # log dir, local rank, stream
has_size() { [ "$(stat -c %s "$2")" -eq "$1" ]; }
sanitized() { case $BUILD in *asan*|*tsan*) true ;; *) false ;; esac; }

# The largest resident size the agent (and its guard) had so far, in KiB; $1: pid of fsdprun.
peak_kib() {
  local pid total=0
  for pid in "$1" $(cat "/proc/$1/task/$1/children"); do
    total=$((total + $(awk '/^VmHWM/ {print $2}' "/proc/$pid/status")))
  done
  echo $total
}
below_64_mib() { # name, peak
  if sanitized; then skip "$1" "a sanitizer's own memory counts"; return; fi
  if [ "$2" -gt 0 ] && [ "$2" -lt 65536 ]; then ok "$1"; else not_ok "$1" "peak: $2 KiB"; fi
}

# --- 1 GB into a console that nobody reads ------------------------------------------------------------------------
mkfifo "$WORK/unread"
exec 9<> "$WORK/unread" # held open, never read
"$F" --log-dir "$WORK/gb" -t 1 "$TOY/toy" flood=1000000000 "touch=$WORK/gb-done" hang > "$WORK/unread" 2> "$WORK/gb-err" &
pid=$!
check "a worker writes 1 GB while nobody reads the console" wait_until 120 test -s "$WORK/gb-done"
wait_until 60 has_size 1000000000 $(log_of "$WORK/gb" 0 stdout)
check_eq "all of it is in its file" 1000000000 "$(stat -c %s $(log_of "$WORK/gb" 0 stdout))"
below_64_mib "the agent stayed below 64 MiB" "$(peak_kib $pid)"
check_eq "the shared pipe was not made non-blocking" 0 "$(($(awk '/^flags/ {print $2}' /proc/self/fdinfo/9) & 04000))"
kill -TERM $pid; wait $pid
check_eq "it can be stopped all the same" 143 $?
check_match "and says how much was not shown, and where it is" "bytes of output were not shown; all of it is in $WORK/gb/" "$(cat "$WORK/gb-err")"
rm -rf "$WORK/gb"

# --- one line of 100 MB --------------------------------------------------------------------------------------------
"$F" --log-dir "$WORK/line" -t 1 "$TOY/writer" line 100000000 > "$WORK/line-out" 2> "$WORK/err"
check_eq "a line of 100 MB passes" 0 $?
check_eq "and is whole in its file" 100000005 "$(stat -c %s $(log_of "$WORK/line" 0 stdout))"
check_eq "the console shows two lines" 2 "$(wc -l < "$WORK/line-out")"
check_match "the first is cut and says where the rest is" "^\[default0\]:x\.\.\. \[cut: 100000000 bytes in $WORK/line/.*/stdout\.log\]$" \
  "$(head -n 1 "$WORK/line-out" | sed -E 's/^(\[default0\]:)x+/\1x/')"
check_eq "64 KiB of it are shown" 65536 "$(head -n 1 "$WORK/line-out" | sed 's/\.\.\. .*//' | tr -dc x | wc -c)"
rm -rf "$WORK/line"

"$F" --log-dir "$WORK/line" -t 1 sh -c '"$0" line 100000000; echo > "$1"; exec sleep 1000' "$TOY/writer" "$WORK/line-done" \
  > "$WORK/unread" 2> "$WORK/err" &
pid=$!
check "a line of 100 MB waits for nobody" wait_until 120 test -s "$WORK/line-done"
wait_until 60 has_size 100000005 $(log_of "$WORK/line" 0 stdout)
below_64_mib "the agent stays below 64 MiB with it" "$(peak_kib $pid)"
kill -TERM $pid; wait $pid
rm -rf "$WORK/line"

# --- lines of 64 KiB from eight ranks --------------------------------------------------------------------------------
n_lines=12
"$F" --nproc-per-node 8 -t 3 --prefix --log-dir "$WORK/ranks" "$TOY/writer" lines 65536 $n_lines > "$WORK/console" 2>&1
check_eq "eight ranks write lines of 64 KiB to both streams" 0 $?
# Every line is a prefix and one letter repeated: "[rank 3]: d..." or D for stderr.
sed -E 's/^\[rank ([0-7])\]: (.*)$/\1 \2/' "$WORK/console" | awk -v want=65536 '
  { c = substr($2, 1, 1); rest = $2; gsub(c, "", rest); i = index("abcdefgh", tolower(c)) - 1
    if (length($2) != want || rest != "" || i != $1) bad++; else good++ }
  END { print good + 0, bad + 0 }' > "$WORK/verdict"
check_eq "none is torn, mixed or lost" "$((8 * 2 * n_lines)) 0" "$(cat "$WORK/verdict")"
rm -rf "$WORK/ranks" "$WORK/console"

# --- a terminal that stops ---------------------------------------------------------------------------------------------
"$TOY/stalled_terminal" "$WORK/tty-done" "$F" --log-dir "$WORK/tty" --nproc-per-node 2 -t 3 "$TOY/toy" flood=3000000 \
  "touch=$WORK/tty-done" > "$WORK/tty-out"
check_match "workers finish while the terminal is stopped" "exit=0 stalled=yes" "$(tail -n 2 "$WORK/tty-out")"
check_match "the terminal's description is left as it was" "nonblocking=no" "$(tail -n 1 "$WORK/tty-out")"
check_eq "and the terminal gets every line when it goes on" 60000 "$(tr -d '\r' < "$WORK/tty-out" | grep -c '^\[default[01]\]:x\{99\}$')"

# --- a reader that goes away -------------------------------------------------------------------------------------------
"$F" --log-dir "$WORK/gone" -t 1 "$TOY/toy" flood=2000000 "touch=$WORK/gone-done" 2> "$WORK/err" | head -n 1 > /dev/null
check_eq "a console whose reader leaves does not end the run" "0 20000" \
  "${PIPESTATUS[0]} $(grep -c x $(log_of "$WORK/gone" 0 stdout))"

# --- where the streams go ----------------------------------------------------------------------------------------------
"$F" --log-dir "$WORK/r" -r 0:3,1:1 --nproc-per-node 2 "$TOY/toy" say=out err=err > "$WORK/out" 2> "$WORK/err"
check_eq "redirected streams are in files only" "| err" "$(cat "$WORK/out")| $(cat "$WORK/err")"
check_eq "by rank and stream" "out err out" "$(cat $(log_of "$WORK/r" 0 stdout) $(log_of "$WORK/r" 0 stderr) $(log_of "$WORK/r" 1 stdout) | xargs)"
check_eq "what is not captured has no file" "" "$(ls "$WORK"/r/*/attempt_0/1/stderr.log 2> /dev/null)"
printf '%s' "$("$F" -t 1 sh -c 'printf "no newline"' 2> "$WORK/err")" > "$WORK/out"
check_eq "a last line without its newline is shown" "[default0]:no newline" "$(cat "$WORK/out")"
check_eq "a progress bar of carriage returns shows line by line" "[default0]:10%/[default0]:20%/[default0]:done/" \
  "$("$F" -t 1 sh -c 'printf "10%%\r20%%\rdone\n"' 2> "$WORK/err" | tr '\n' /)"
check_eq "nothing is kept for --log-dir /dev/null, and shown all the same" "[default0]:hi" \
  "$("$F" --log-dir /dev/null -t 1 "$TOY/toy" say=hi 2> "$WORK/err")"

# --- the last words ----------------------------------------------------------------------------------------------------
"$F" --log-dir "$WORK/tail" -r 2 "$TOY/toy" err=early err=boom exit=9 2> "$WORK/err"
check_match "the cause of a failure comes with the last lines of stderr" "^  boom" "$(cat "$WORK/err")"
check_match "errors.json has them too" '"stderr": \["early", "boom"\]' "$(cat "$WORK"/tail/*/errors.json)"

# --- a full disk -------------------------------------------------------------------------------------------------------
mkdir "$WORK/full"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=1m none "$WORK/full" 2> "$WORK/err"; then
  mounted=$WORK/full
  "$F" --log-dir "$WORK/full" -r 1 "$TOY/toy" flood=8000000 say=over "touch=$WORK/full-done" 2> "$WORK/err"
  check_eq "a full disk does not end the workers" "0 yes" "$? $(test -s "$WORK/full-done" && echo yes)"
  check_eq "it is said once" 1 "$(grep -c 'No space left on device' "$WORK/err")"
  check_match "and how much was lost" "[0-9]{7} bytes of output were lost" "$(cat "$WORK/err")"
else
  skip "a full disk does not end the workers" "needs root and mount"
fi
exit $((n_failed > 0))
