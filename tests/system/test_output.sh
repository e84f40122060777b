# What workers write: to its file first, to the console as fast as that goes, and nobody ever waits for a
# terminal.
. tests/support/shell/harness.sh
F=$BIN/fsdprun
at_exit() { exec 9<&-; }

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

# 1 GB into a console that nobody reads
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

# one line of 100 MB
long_line='head -c 100000000 /dev/zero | tr "\0" x; printf "\nend\n"'
"$F" --log-dir "$WORK/line" -t 1 sh -c "$long_line" > "$WORK/line-out" 2> "$WORK/err"
check_eq "a line of 100 MB passes" 0 $?
check_eq "and is whole in its file" 100000005 "$(stat -c %s $(log_of "$WORK/line" 0 stdout))"
check_eq "the console shows two lines" 2 "$(wc -l < "$WORK/line-out")"
check_match "the first is cut and says where the rest is" "^\[default0\]:x\.\.\. \[cut: 100000000 bytes in $WORK/line/.*/stdout\.log\]$" \
  "$(head -n 1 "$WORK/line-out" | sed -E 's/^(\[default0\]:)x+/\1x/')"
check_eq "64 KiB of it are shown" 65536 "$(head -n 1 "$WORK/line-out" | sed 's/\.\.\. .*//' | tr -dc x | wc -c)"
rm -rf "$WORK/line"

"$F" --log-dir "$WORK/line" -t 1 sh -c "$long_line"'; echo > "$0"; exec sleep 1000' "$WORK/line-done" \
  > "$WORK/unread" 2> "$WORK/err" &
pid=$!
check "a line of 100 MB waits for nobody" wait_until 120 test -s "$WORK/line-done"
wait_until 60 has_size 100000005 $(log_of "$WORK/line" 0 stdout)
below_64_mib "the agent stays below 64 MiB with it" "$(peak_kib $pid)"
kill -TERM $pid; wait $pid
rm -rf "$WORK/line"

# a terminal that stops
"$TOY/stalled_terminal" "$WORK/tty-done" "$F" --log-dir "$WORK/tty" --nproc-per-node 2 -t 3 "$TOY/toy" flood=3000000 \
  "touch=$WORK/tty-done" > "$WORK/tty-out"
check_match "workers finish while the terminal is stopped" "exit=0 stalled=yes" "$(tail -n 2 "$WORK/tty-out")"
check_match "the terminal's description is left as it was" "nonblocking=no" "$(tail -n 1 "$WORK/tty-out")"
check_eq "and the terminal gets every line when it goes on" 60000 "$(tr -d '\r' < "$WORK/tty-out" | grep -c '^\[default[01]\]:x\{99\}$')"

# a reader that goes away
"$F" --log-dir "$WORK/gone" -t 1 "$TOY/toy" flood=2000000 "touch=$WORK/gone-done" 2> "$WORK/err" | head -n 1 > /dev/null
check_eq "a console whose reader leaves does not end the run" "0 20000" \
  "${PIPESTATUS[0]} $(grep -c x $(log_of "$WORK/gone" 0 stdout))"

# what is shown
printf '%s' "$("$F" -t 1 sh -c 'printf "no newline"' 2> "$WORK/err")" > "$WORK/out"
check_eq "a last line without its newline is shown" "[default0]:no newline" "$(cat "$WORK/out")"
check_eq "a progress bar of carriage returns shows line by line" "[default0]:10%/[default0]:20%/[default0]:done/" \
  "$("$F" -t 1 sh -c 'printf "10%%\r20%%\rdone\n"' 2> "$WORK/err" | tr '\n' /)"
