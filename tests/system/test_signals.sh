# Signals and job control: what reaches whom, how it ends, Ctrl-Z and fg, a rank that reads the terminal.
source tests/support/harness.sh
FSDPRUN=${FSDPRUN:-$BIN/fsdprun}
mark=fsdp-signal-$$
toy=$WORK/$mark
ln -s "$TOY/toy" "$toy"
at_exit() { pkill -KILL -f -- "$mark" 2>/dev/null; :; }
launched() { [ "$(grep -c . "$WORK/pids" 2>/dev/null)" -ge "$1" ]; }
start() { # workers, options until --, actions
  local n=$1; shift
  rm -f "$WORK/pids"
  env --default-signal=INT,QUIT "$FSDPRUN" --nproc-per-node "$n" "$@" "touch=$WORK/pids" hang > "$WORK/out" 2> "$WORK/err" < /dev/null &
  guard=$!
  wait_until 30 launched "$n"
}
pid_of() { awk -v r="$1" '$1 == r {print $2}' "$WORK/pids"; }
state_of() { awk '/^State:/ {print $2}' "/proc/$1/status" 2>/dev/null; }
is_state() { [ "$(state_of "$1")" = "$2" ]; }
gone() { [ -z "$(state_of "$1")" ] || is_state "$1" Z; }

for pair in TERM:143 INT:130 HUP:129 QUIT:131; do
  start 2 -- "$toy"
  kill "-${pair%:*}" "$guard"; wait "$guard"
  check_eq "SIG${pair%:*} stops the run: ${pair#*:}" "${pair#*:}" $?
  check_match "SIG${pair%:*}: the last line says so" "stopped by SIG${pair%:*}" "$(tail -n 1 "$WORK/err")"
  check "SIG${pair%:*}: nothing is left" none_alive "$mark"
done

start 2 -- "$toy" onterm=0
kill -TERM "$guard"; wait "$guard"
check_eq "workers that end well on TERM: still 143" 143 $?

start 2 --shutdown-timeout 1 -- "$toy" ignore=15
kill -TERM "$guard"; wait "$guard"
check_eq "workers that ignore TERM are killed after the grace: 143" 143 $?
check "none of them is left" none_alive "$mark"

start 2 --shutdown-timeout 60 -- "$toy" "catch=15:$WORK/term"
kill -TERM "$guard"
both_got_it() { [ "$(grep -c . "$WORK/term" 2>/dev/null)" -ge 2 ]; }
wait_until 30 both_got_it && ok "TERM reaches every worker" || not_ok "TERM reaches every worker"
kill -TERM "$guard"; wait_at_most 1 is_state "$guard" Z
is_state "$guard" S && ok "a second TERM changes nothing" || not_ok "a second TERM changes nothing" "$(cat "$WORK/err")"
check_eq "and is not passed on" 2 "$(grep -c . "$WORK/term")"
kill -INT "$guard"; wait_at_most 1 is_state "$guard" Z
kill -INT "$guard"; wait "$guard"
check_eq "two interrupts end the wait; the first signal stays the status" 143 $?

# A scheduler or service manager may signal every process of the run: the guard, the agent and so on. It is one signal all the same.
start 2 --shutdown-timeout 60 -- "$toy" "catch=2:$WORK/int"
agent=$(tr -d ' ' < "/proc/$guard/task/$guard/children")
both_got_int() { [ "$(grep -c . "$WORK/int" 2>/dev/null)" -ge 2 ]; }
kill -INT "$guard" "$agent"
wait_until 30 both_got_int; wait_at_most 1 is_state "$guard" Z
is_state "$guard" S && ok "an interrupt of every process is one: the grace runs" || not_ok "an interrupt of every process is one: the grace runs" "$(cat "$WORK/err")"
kill -INT "$guard" "$agent"; wait "$guard"
check_eq "the second ends it: 130" 130 $?

# Two signals of two senders are two, though one came by way of the guard and the other did not.
start 1 --forward-signals USR1 -- "$toy" "catch=10:$WORK/usr1"
agent=$(tr -d ' ' < "/proc/$guard/task/$guard/children")
got_usr1() { [ "$(grep -c . "$WORK/usr1" 2>/dev/null)" -ge "$1" ]; }
sh -c "kill -USR1 $agent; :"
wait_until 30 got_usr1 1
sh -c "kill -USR1 $guard; :"
check "a signal to the agent alone does not swallow the next one to the run" wait_until 3 got_usr1 2
kill -TERM "$guard"; wait "$guard"

# A signal while a generation is being replaced.
start 2 --max-restarts 1000 -- "$toy" rank=1 exit=1
kill -TERM "$guard"; wait "$guard"
check_eq "TERM while the world restarts: 143" 143 $?
check "TERM while the world restarts: nothing is left" none_alive "$mark"

# nohup
rm -f "$WORK/pids"
env --ignore-signal=HUP "$FSDPRUN" -- "$toy" "touch=$WORK/pids" hang > /dev/null 2>&1 < /dev/null &
guard=$!
wait_until 30 launched 1
kill -HUP "$guard"; wait_at_most 1 is_state "$guard" Z
is_state "$guard" S && ok "a HUP that was ignored at the start stays so" || not_ok "a HUP that was ignored at the start stays so"
kill -TERM "$guard"; wait "$guard"

# Ctrl-Z and fg.
start 2 -- "$toy" child
agent=$(tr -d ' ' < "/proc/$guard/task/$guard/children")
kill -TSTP "$guard"
wait_until 30 is_state "$guard" T && ok "Ctrl-Z stops what the user sees" || not_ok "Ctrl-Z stops what the user sees"
is_state "$agent" T && ok "Ctrl-Z stops the agent" || not_ok "Ctrl-Z stops the agent"
stopped=0; for p in $(pgrep -f -- "$mark"); do [ "$p" = "$guard" ] || [ "$p" = "$agent" ] || ! is_state "$p" T || stopped=$((stopped + 1)); done
check_eq "Ctrl-Z stops the workers and their children" 4 "$stopped"
kill -CONT "$guard"
wait_until 30 is_state "$(pid_of 0)" S && ok "fg lets the workers go on" || not_ok "fg lets the workers go on"
is_state "$guard" S && ok "fg lets fsdprun go on" || not_ok "fg lets fsdprun go on"
kill -TSTP "$guard"; wait_until 30 is_state "$guard" T
kill -CONT "$guard"; wait_until 30 is_state "$(pid_of 1)" S && ok "and once more" || not_ok "and once more"
kill -TERM "$guard"; wait "$guard"
check_eq "it can be stopped afterwards: 143" 143 $?

# Nothing stays stopped for ever.
start 2 -- "$toy" child
agent=$(tr -d ' ' < "/proc/$guard/task/$guard/children")
kill -STOP "$agent"; wait_until 30 is_state "$agent" T
kill -CONT "$agent"; wait_until 30 is_state "$agent" S
kill -STOP "$agent"; wait_until 30 is_state "$agent" T
is_state "$guard" S && ok "SIGSTOP of the agent does not stop what the user sees" || not_ok "SIGSTOP of the agent does not stop what the user sees"
kill -TSTP "$guard"
wait_until 30 is_state "$guard" T && ok "Ctrl-Z stops it while the agent stands still" || not_ok "Ctrl-Z stops it while the agent stands still"
kill -CONT "$guard"
wait_until 30 is_state "$agent" S && ok "fg lets both go on" || not_ok "fg lets both go on"
kill -KILL "$guard"; wait "$guard" 2> /dev/null
n_ended=0
for round in $(seq 20); do # which of the two processes hears of what first differs from round to round
  start 2 -- "$toy" child
  kill -TSTP "$guard"; kill -CONT "$guard"; kill -TERM "$guard" # at once
  wait_until 20 gone "$guard" || { kill -KILL "$guard"; break; }
  wait "$guard"; [ $? = 143 ] && n_ended=$((n_ended + 1))
done
check_eq "fg right after Ctrl-Z: it goes on, and ends when it is told to" 20 $n_ended
for victim in guard agent; do
  start 2 -- "$toy" child
  agent=$(tr -d ' ' < "/proc/$guard/task/$guard/children")
  kill -TSTP "$guard"; wait_until 30 is_state "$guard" T
  kill -KILL "${!victim}"; kill -CONT "$guard" 2> /dev/null
  wait_until 10 none_alive "$mark" && ok "Ctrl-Z, then SIGKILL of the $victim: nothing is left" || not_ok "Ctrl-Z, then SIGKILL of the $victim: nothing is left"
  pkill -KILL -f -- "$mark"; wait "$guard"
done 2> /dev/null

# Time spent stopped is not time of the grace.
start 1 --shutdown-timeout 8 -- "$toy" "catch=15:$WORK/grace"
kill -TERM "$guard"; wait_until 30 test -s "$WORK/grace"
kill -TSTP "$guard"; wait_until 30 is_state "$guard" T
wait_at_most 9 false # longer than the grace
kill -CONT "$guard"; wait_until 30 is_state "$(pid_of 0)" S && ok "a worker in its grace is there after a long stop" || not_ok "a worker in its grace is there after a long stop"
kill -INT "$guard"; wait_at_most 1 false; kill -INT "$guard"; wait "$guard"

# The terminal: a pty by script(1) where it is found.
if command -v script > /dev/null; then
  type_hello() { wait_until 30 launched 1; echo hello; wait_until 30 grep -q 'read:' "$WORK/tty"; }
  rm -f "$WORK/pids"; : > "$WORK/tty"
  type_hello | timeout 600 script -qec "$FSDPRUN -- $toy touch=$WORK/pids read" "$WORK/tty" > /dev/null 2>&1
  check_match "a rank can read the terminal" "read: hello" "$(cat "$WORK/tty")"
  rm -f "$WORK/pids"; : > "$WORK/tty"
  interrupt() { wait_until 30 launched 2; printf '\003'; wait_until 30 grep -q 'stopped by' "$WORK/tty"; }
  # exec: a shell that waited for it would get the interrupt as well, and some die of it.
  interrupt | timeout 600 script -qec "exec $FSDPRUN --nproc-per-node 2 -- $toy touch=$WORK/pids hang" "$WORK/tty" > /dev/null 2>&1
  check_eq "Ctrl-C on a terminal is one signal: 130" 130 $?
  check "Ctrl-C on a terminal: nothing is left" none_alive "$mark"
else
  skip "a rank can read the terminal" "no script(1)"
fi
[ "$n_failed" = 0 ]
