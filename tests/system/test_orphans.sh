# Nothing is left: SIGKILL of either process of the launcher, at any time, and every other way a run ends.
# Alone
source tests/support/shell/harness.sh
interruptible="env --default-signal=INT,QUIT" # a script's background jobs are started with these ignored
mark=fsdp-orphan-$$
toy=$WORK/$mark # every process of a run has this name in its command line
ln -s "$TOY/toy" "$toy"
repeats=${FSDP_TEST_REPEATS:-30}

agent_of() { cat "/proc/$1/task/$1/children" 2>/dev/null | tr -d ' '; }
has_agent() { [ -n "$(agent_of "$1")" ]; }
launched() { [ "$(grep -c . "$WORK/pids" 2>/dev/null)" -ge "$1" ]; }
at_exit() { pkill -KILL -f -- "$mark" 2>/dev/null; :; }

# start N ARGUMENTS...: a run in the background, $guard and $agent set, once N workers said that they are
# there.
start() {
  local n=$1; shift
  rm -f "$WORK/pids"
  $interruptible "$FSDPRUN" --nproc-per-node "$n" -- "$toy" "$@" "touch=$WORK/pids" hang > "$WORK/out" 2> "$WORK/err" < /dev/null &
  guard=$!
  wait_until 30 launched "$n" || return 1
  agent=$(agent_of "$guard")
  [ -n "$agent" ]
}

# kill_and_look PIDS...: SIGKILL, then nothing but zombies may be left; prints how long it took in ms.
kill_and_look() {
  local began; began=$(date +%s%N)
  kill -KILL "$@" 2>/dev/null
  wait_until 10 none_alive "$mark" || { echo "left: $(pgrep -af -- "$mark")"; pkill -KILL -f -- "$mark"; return 1; }
  took=$((($(date +%s%N) - began) / 1000000))
  wait "$guard" 2>/dev/null
  return 0
}

# each_time N TITLE COMMAND...: the command, N times; says which was the first that failed.
each_time() {
  local n=$1 title=$2 i out
  shift 2
  for i in $(seq "$n"); do
    "$@" > "$WORK/each" || { not_ok "$title" "run $i: $(cat "$WORK/each" "$WORK/err")"; return; }
  done
  ok "$title ($n runs)"
}
killed() { # VICTIM
  start 2 orphans=2 child || { echo "it did not start"; return 1; }
  kill_and_look "${!1}" || return 1
  [ "$took" -le "$worst" ] || worst=$took
}
# After a random part of the time that a start takes.
killed_while_it_spawns() { # VICTIM
  "$FSDPRUN" --nproc-per-node 8 -- "$toy" daemon hang > /dev/null 2>&1 < /dev/null &
  guard=$!
  wait_until 10 has_agent "$guard" || :
  agent=$(agent_of "$guard")
  read -r -t "0.00$((RANDOM % 10))$((RANDOM % 10))" <> <(:) || :
  [ -n "${!1}" ] && kill_and_look "${!1}" || { kill -KILL "$guard" 2> /dev/null; return 1; }
}
# The workers themselves die by their parent-death signal. What they left may stay: that is documented.
both_killed() { start 4 && kill_and_look "$guard" "$agent"; }
for victim in guard agent; do
  worst=0
  each_time "$repeats" "the $victim killed: nothing is left" killed $victim
  check "the $victim killed: it is over within 1 s ($worst ms)" in_good_time 1000 "$worst"
  each_time "$repeats" "the $victim killed while it spawns: nothing is left" killed_while_it_spawns $victim
done
each_time 10 "both killed at once: the workers die" both_killed

start 2 orphans=3 && kill -KILL "$agent"; wait "$guard"
check_eq "the agent killed: the exit status is its signal's" 137 $?
check_match "the agent killed: one line says so" "agent \(pid [0-9]+\) was killed by SIGKILL" "$(cat "$WORK/err")"
check "the agent killed: orphans are gone when fsdprun has ended" none_alive "$mark"

# The line has no reader any more (| head; a detached job, once it has started). The pipe is one without a
# name: a FIFO that nothing reads would be seen before the write.
rm -f "$WORK/pids"
exec 8> >(:)
env --default-signal=PIPE "$FSDPRUN" --nproc-per-node 2 -- "$toy" orphans=3 "touch=$WORK/pids" hang > /dev/null 2>&8 8>&- < /dev/null &
guard=$!
exec 8>&-
wait_until 30 launched 2 && kill -KILL "$(agent_of "$guard")"; wait "$guard"
check_eq "the agent killed, and no reader of stderr: 137" 137 $?
check "the agent killed, and no reader of stderr: orphans are gone when fsdprun has ended" none_alive "$mark"

# A fork that runs away is still ended.
start 1 fork
check "a worker that forks for ever is ended with its children" kill_and_look "$agent"

# Every ordinary end, too.
"$FSDPRUN" --nproc-per-node 2 -- "$toy" orphans=2 child > /dev/null 2>&1
check_eq "workers that end well and leave children: exit 0" 0 $?
check "workers that end well and leave children: those are gone" none_alive "$mark"
start 2 orphans=2 child "catch=2:$WORK/term"
kill -INT "$guard"
wait_until 30 test -s "$WORK/term" # the first one is at work: a second that comes before would be the same signal
kill -INT "$guard"
wait "$guard"
check_eq "a second interrupt ends workers that ignore the first: 130" 130 $?
check "a second interrupt: everything is gone" none_alive "$mark"

# Children that the process had before it was fsdprun are nobody's business of ours.
bash -c "sleep 321.$$ & exec \"\$0\" -- \"\$1\" exit=0" "$FSDPRUN" "$toy" > /dev/null 2>&1
check "a child from before exec is let be" pgrep -f "sleep 321.$$"
pkill -f "sleep 321.$$"

# A rank that was stopped is ended all the same.
rm -f "$WORK/pids"
"$FSDPRUN" --nproc-per-node 2 --shutdown-timeout 20 -- "$toy" "touch=$WORK/pids" rank=0 stop rank=1 "wait=$WORK/go" rank=1 exit=3 hang > /dev/null 2>&1 &
guard=$!
wait_until 30 launched 2
stopped() { grep -q '^State:.T' "/proc/$(awk '$1 == 0 {print $2}' "$WORK/pids")/status"; }
wait_until 30 stopped
began=$(date +%s); touch "$WORK/go"; wait "$guard"
check_eq "a stopped rank, and one that fails: the failure's status" 3 $?
check "a stopped rank takes TERM at once" in_good_time 15000 $((($(date +%s) - began) * 1000))
