# Signals and job control: what reaches whom, how it ends, Ctrl-Z and fg, a rank that reads the terminal.
source tests/support/shell/harness.sh
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
  agent=$(tr -d ' ' < "/proc/$guard/task/$guard/children")
}
# caught N FILE: have so many signals been written there?
caught() { [ "$(grep -c . "$2" 2> /dev/null)" -ge "$1" ]; }
pid_of() { awk -v r="$1" '$1 == r {print $2}' "$WORK/pids"; }
state_of() { awk '/^State:/ {print $2}' "/proc/$1/status" 2>/dev/null; }
is_state() { [ "$(state_of "$1")" = "$2" ]; }
gone() { [ -z "$(state_of "$1")" ] || is_state "$1" Z; }

start 2 -- "$toy" onterm=0
kill -TERM "$guard"; wait "$guard"
check_eq "workers that end well on TERM: still 143" 143 $?

start 2 --shutdown-timeout 60 -- "$toy" "catch=15:$WORK/term"
kill -TERM "$guard"
check "TERM reaches every worker" wait_until 30 caught 2 "$WORK/term"
kill -TERM "$guard"; wait_at_most 1 is_state "$guard" Z
check "a second TERM changes nothing" is_state "$guard" S
check_eq "and is not passed on" 2 "$(grep -c . "$WORK/term")"
kill -INT "$guard"; wait_at_most 1 is_state "$guard" Z
kill -INT "$guard"; wait "$guard"
check_eq "two interrupts end the wait; the first signal stays the status" 143 $?

# A scheduler or service manager may signal every process of the run: the guard, the agent and so on. It is
# one signal all the same.
start 2 --shutdown-timeout 60 -- "$toy" "catch=2:$WORK/int"
kill -INT "$guard" "$agent"
wait_until 30 caught 2 "$WORK/int"; wait_at_most 1 is_state "$guard" Z
check "an interrupt of every process is one: the grace runs" is_state "$guard" S
kill -INT "$guard" "$agent"; wait "$guard"
check_eq "the second ends it: 130" 130 $?

# Two signals of two senders are two, though one came by way of the guard and the other did not.
start 1 --forward-signals USR1 -- "$toy" "catch=10:$WORK/usr1"
sh -c "kill -USR1 $agent; :"
wait_until 30 caught 1 "$WORK/usr1"
sh -c "kill -USR1 $guard; :"
check "a signal to the agent alone does not swallow the next one to the run" \
  wait_until 3 caught 2 "$WORK/usr1"
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
check "a HUP that was ignored at the start stays so" is_state "$guard" S
kill -TERM "$guard"; wait "$guard"

# Ctrl-Z and fg.
start 2 -- "$toy" child
kill -TSTP "$guard"
check "Ctrl-Z stops what the user sees" wait_until 30 is_state "$guard" T
check "Ctrl-Z stops the agent" is_state "$agent" T
stopped=0; for p in $(pgrep -f -- "$mark"); do [ "$p" = "$guard" ] || [ "$p" = "$agent" ] || ! is_state "$p" T || stopped=$((stopped + 1)); done
check_eq "Ctrl-Z stops the workers and their children" 4 "$stopped"
kill -CONT "$guard"
check "fg lets the workers go on" wait_until 30 is_state "$(pid_of 0)" S
check "fg lets fsdprun go on" wait_until 30 is_state "$guard" S
kill -TSTP "$guard"; wait_until 30 is_state "$guard" T
kill -CONT "$guard"
check "and once more" wait_until 30 is_state "$(pid_of 1)" S
kill -TERM "$guard"; wait "$guard"
check_eq "it can be stopped afterwards: 143" 143 $?

# Nothing stays stopped for ever.
start 2 -- "$toy" child
kill -STOP "$agent"; wait_until 30 is_state "$agent" T
kill -CONT "$agent"; wait_until 30 is_state "$agent" S
kill -STOP "$agent"; wait_until 30 is_state "$agent" T
check "SIGSTOP of the agent does not stop what the user sees" is_state "$guard" S
kill -TSTP "$guard"
check "Ctrl-Z stops it while the agent stands still" wait_until 30 is_state "$guard" T
kill -CONT "$guard"
check "fg lets both go on" wait_until 30 is_state "$agent" S
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
  kill -TSTP "$guard"; wait_until 30 is_state "$guard" T
  kill -KILL "${!victim}"; kill -CONT "$guard" 2> /dev/null
  check "Ctrl-Z, then SIGKILL of the $victim: nothing is left" wait_until 10 none_alive "$mark"
  pkill -KILL -f -- "$mark"; wait "$guard"
done 2> /dev/null

# Time spent stopped is not time of the grace.
start 1 --shutdown-timeout 8 -- "$toy" "catch=15:$WORK/grace"
kill -TERM "$guard"; wait_until 30 test -s "$WORK/grace"
kill -TSTP "$guard"; wait_until 30 is_state "$guard" T
wait_at_most 9 false # longer than the grace
kill -CONT "$guard"
check "a worker in its grace is there after a long stop" wait_until 30 is_state "$(pid_of 0)" S
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
