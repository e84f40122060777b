# How a run stops: which signal the workers get, the grace on every way to the end, what is passed on, what is
# left of it.
# torch: multiprocessing/api_test.py (signals, zombies, a child that ignores TERM),
# agent/server/test/shutdown_timeout_test.py.
# Long
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
mark=fsdp-stop-$$
toy=$WORK/$mark
ln -s "$TOY/toy" "$toy"
export TMPDIR=$WORK
at_exit() {
  pkill -KILL -f -- "$mark" 2> /dev/null
  [ -z "${fuse:-}" ] || { kill "$fuse"; wait "$fuse"; umount -l "$WORK/hang"; } 2> /dev/null
  :
}
# none_left RANK...: their processes are gone
none_left() {
  local rank
  for rank in "$@"; do
    ! kill -0 "$(awk -v rank="$rank" '$1 == rank { print $2 }' "$WORK/pids")" 2> /dev/null || return 1
  done
}
lines_in() { [ "$(grep -c . "$2" 2> /dev/null)" -ge "$1" ]; }
last() { tail -n 1 "$WORK/err"; }
# start N OPTIONS... -- PROGRAM...: in the background with default signals, once N workers have said that they
# are there.
start() {
  local n=$1; shift
  rm -f "$WORK/pids"
  env --default-signal=INT,QUIT,USR1,USR2 "$FSDPRUN" "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null &
  guard=$!
  wait_until 60 lines_in "$n" "$WORK/pids"
}
here="touch=$WORK/pids"
port=$(port_block)
# nodes N OPTIONS...: two nodes with a grace of 2 s, in ${pids[0]} and ${pids[1]}, once N workers have said
# that they are there. The output is in $WORK/node0 and $WORK/node1.
nodes() {
  local n=$1 node
  shift
  port=$((port + 1))
  rm -f "$WORK/pids"
  for node in 0 1; do
    env --default-signal=INT,QUIT,USR1,USR2 "$FSDPRUN" --nnodes 2 --node-rank $node --insecure \
      --shutdown-timeout 2 --rdzv-endpoint 127.0.0.1:$port "$@" > "$WORK/node$node" 2>&1 < /dev/null &
    pids[node]=$!
  done
  wait_until 60 lines_in "$n" "$WORK/pids" ||
    not_ok "two nodes form a world" "$(cat "$WORK/node0" "$WORK/node1")"
}
# timed COMMAND...: its status in $rc, the seconds it took in $took
timed() { local began=$SECONDS; "$@"; rc=$?; took=$((SECONDS - began)); }
# within NAME LOW HIGH: $took
within() {
  [ "$took" -ge "$2" ] && in_good_time $(($3 * 1000)) $((took * 1000)) && ok "$1" || not_ok "$1" "took $took s, want $2 to $3" "$(tail -n 5 "$WORK/err")"
}

# What Ctrl-C is answered with on a terminal: how long it may take, where anything is waited for.
if command -v script > /dev/null; then
  interrupt() { # COMMAND: run on a terminal, interrupted once $WORK/up is there; what stood on the terminal is $WORK/tty
    rm -f "$WORK/up" "$WORK/over" "$WORK/pid"
    timeout 60 script -qec "echo \$\$ > $WORK/pid; exec env --default-signal=INT $1" /dev/null < /dev/null > "$WORK/tty" 2>&1 &
    local terminal=$!
    wait_until 60 test -e "$WORK/up" && kill -INT "$(cat "$WORK/pid")"
    wait_until 20 grep -q 'fsdprun: stopping\|stopped by' "$WORK/tty"
    : > "$WORK/over"; wait $terminal
  }
  printf '#!/bin/sh\ntrap "" INT TERM\n: > %s\nuntil [ -e %s ]; do sleep 0.05; done\n' "$WORK/up" "$WORK/over" > "$WORK/stubborn-$mark"
  chmod 755 "$WORK/stubborn-$mark"
  interrupt "$FSDPRUN --shutdown-timeout 50 -- $WORK/stubborn-$mark"
  check_match "the first Ctrl-C is answered with the grace" '^fsdprun: stopping, up to 50 s; Ctrl-C again kills' "$(cat "$WORK/tty")"
  check_eq "once" 1 "$(grep -c 'stopping' "$WORK/tty")"
  mkdir "$WORK/bin"; cp "$FSDPRUN" "$WORK/bin/"; cp "$WORK/stubborn-$mark" "$WORK/bin/fsdp-train"
  tiny_job "$WORK/job.yaml"
  interrupt "$WORK/bin/fsdprun --nproc-per-node 1 $WORK/job.yaml"
  check_match "a job waits for nothing, and promises nothing" '^fsdprun: stopping.?$' "$(grep stopping "$WORK/tty")"
else
  skip "the answer to Ctrl-C" "needs script(1)"
fi

# The signals that stop a run: the workers get the same one, and the status says which.
for pair in TERM:15 INT:2 HUP:1 QUIT:3; do
  rm -f "$WORK/caught"
  start 2 --nproc-per-node 2 --shutdown-timeout 1 -- "$toy" orphans=2 child \
    "catch=${pair#*:}:$WORK/caught" "$here" hang
  kill "-${pair%:*}" "$guard"; wait "$guard"
  check_eq "SIG${pair%:*}: $((128 + ${pair#*:}))" $((128 + ${pair#*:})) $?
  check_eq "SIG${pair%:*}: the workers got it" "0 ${pair#*:} 1 ${pair#*:}" "$(sort "$WORK/caught" | tr '\n' ' ' | sed 's/ $//')"
  check_match "SIG${pair%:*}: the last line says so" "stopped by SIG${pair%:*}; 2 other ranks were stopped|stopped by SIG${pair%:*}$" "$(last)"
  # Neither a child nor a process in a session of its own is left: torch's zombie test.
  check "SIG${pair%:*}: no child and no grandchild is left" none_alive "$mark"
done
rm -f "$WORK/caught"
start 2 --nproc-per-node 2 --signals-to-handle SIGUSR1,USR2 --shutdown-timeout 1 -- "$toy" "catch=10:$WORK/caught" "$here" hang
kill -USR1 "$guard"; wait "$guard"
check_eq "--signals-to-handle SIGUSR1,USR2: USR1 stops: 138" 138 $?
check_eq "and is what the workers got" 2 "$(grep -c ' 10$' "$WORK/caught")"
start 1 --signals-to-handle USR2 -- "$toy" "$here" hang
kill -HUP "$guard"; wait "$guard" 2> /dev/null
check_eq "a signal in neither set keeps its meaning: HUP ends fsdprun" 129 $?
check "and nothing is left" wait_until 10 none_alive "$mark"
for bad in SIGNOTHING KILL STOP TERM,,INT 15x ""; do
  check_status "--signals-to-handle '$bad' is refused: 2" 2 "$FSDPRUN" --signals-to-handle "$bad" -- "$toy" exit=0
  check_status "--forward-signals '$bad' is refused: 2" 2 "$FSDPRUN" --forward-signals "$bad" -- "$toy" exit=0
done
check_status "one signal in both sets is refused: 2" 2 "$FSDPRUN" --signals-to-handle TERM --forward-signals TERM -- "$toy" exit=0
check_status "a negative grace is refused: 2" 2 "$FSDPRUN" --shutdown-timeout=-1 -- "$toy" exit=0

# The grace, on each way to the end, with workers that ignore what asks them to stop: 2 s, and none.
for grace in 2 0; do
  start 2 --nproc-per-node 2 --shutdown-timeout $grace -- "$toy" ignore=15 "$here" hang
  kill -TERM "$guard"; timed wait "$guard"
  check_eq "grace $grace, a signal: 143" 143 "$rc"
  within "grace $grace, a signal: they are killed after it" $((grace - 1)) 20

  timed "$FSDPRUN" --nproc-per-node 2 --shutdown-timeout $grace -- "$toy" ignore=15 "touch=$WORK/f$grace" \
    "lines=2:$WORK/f$grace" rank=1 exit=3 hang 2> "$WORK/err"
  check_eq "grace $grace, a failure: its status" 3 "$rc"
  within "grace $grace, a failure: the others are killed after it" $((grace - 1)) 20

  timed "$FSDPRUN" --nproc-per-node 2 --shutdown-timeout $grace --max-restarts 1 -- "$toy" gen=1 exit=0 \
    ignore=15 "touch=$WORK/r$grace" "lines=2:$WORK/r$grace" rank=1 exit=3 hang 2> "$WORK/err"
  check_eq "grace $grace, a restart: it goes on" 0 "$rc"
  within "grace $grace, a restart: the others are killed after it" $((grace - 1)) 20

  # What finished workers leave running has a second, or the grace where that is less.
  timed "$FSDPRUN" --shutdown-timeout $grace -- "$toy" daemon exit=0
  check_eq "grace $grace, leftovers of a good end: 0" 0 "$rc"
  check "grace $grace: they are gone" none_alive "$mark"
done

# A node is lost: those of the other have the grace, whichever node it was.
for lost in 1 0; do
  other=$((1 - lost))
  nodes 2 --no-python "$toy" ignore=15 "$here" hang
  began=$SECONDS
  kill -KILL "${pids[lost]}"; wait "${pids[lost]}" 2> /dev/null
  wait "${pids[other]}"; rc=$? took=$((SECONDS - began))
  cp "$WORK/node$other" "$WORK/err"
  check_eq "node $lost is lost: 76 on the other" 76 "$rc"
  within "node $lost is lost: workers of the other have the grace" 1 25
  check "node $lost is lost: nothing is left" wait_until 10 none_alive "$mark"
done

# The same with workers that are as a process inside a call of its driver's is: one that spins, one asleep
# where no signal but KILL wakes it; both deaf to TERM. The link is lost by silence, as all of the other node
# stands still: KILL comes once the grace is over.
nodes 4 --nproc-per-node 2 --no-python "$toy" ignore=15 "$here" rank=0 hang rank=1 hang rank=2 spin vfork
in_state() {
  [ "$(awk '/^State/ { print $2 }' "/proc/$(awk -v rank="$1" '$1 == rank { print $2 }' "$WORK/pids")/status")" = "$2" ]
}
check "a worker spins" wait_until 20 in_state 2 R
check "one sleeps in the kernel" wait_until 20 in_state 3 D
agent=$(pgrep -P "${pids[0]}")
began=$SECONDS
kill -STOP "$agent"
wait "${pids[1]}"; rc=$? took=$((SECONDS - began))
cp "$WORK/node1" "$WORK/err"
check_eq "the coordinator is silent: 76 on the other" 76 "$rc"
within "the coordinator is silent: its workers have the grace" 1 60
check "and are gone by KILL, whatever they are in" none_left 2 3
kill -CONT "$agent"; kill -KILL "${pids[0]}"; wait "${pids[0]}" 2> /dev/null
check "nothing is left" wait_until 10 none_alive "$mark"

# A node comes to a world of 1:2: those who were there are stopped for the new generation, with the grace.
port=$((port + 1))
rm -f "$WORK/pids"
elastic() { "$FSDPRUN" --nnodes 1:2 --rdzv-backend c10d --rdzv-conf last_call_timeout=1 --insecure \
  --rdzv-endpoint 127.0.0.1:$port --local-addr "127.0.0.$1" --shutdown-timeout 2 --no-python "$toy" \
  ignore=15 "$here" "lines=3:$WORK/pids" exit=0 > "$WORK/node$1" 2>&1 < /dev/null & }
elastic 1; pids[0]=$!
wait_until 60 lines_in 1 "$WORK/pids" || not_ok "a world of one forms" "$(cat "$WORK/node1")"
began=$SECONDS
elastic 2; pids[1]=$!
wait "${pids[0]}"; rc=$?; wait "${pids[1]}"; rc="$rc $?" took=$((SECONDS - began))
cat "$WORK/node1" "$WORK/node2" > "$WORK/err"
check_eq "a node comes: both end well" "0 0" "$rc"
within "a node comes: who was there has the grace" 1 60

# Workers of ours are killed at once, whatever the grace: after a hang, a failure, a signal. It bounds a save
# that does not come.
tiny_job "$WORK/job.yaml"
start_job() { # NAME OPTIONS...
  local name=$1; shift
  env --default-signal=INT,QUIT "$FSDPRUN" --nproc-per-node 2 --shutdown-timeout 600 "$WORK/job.yaml" \
    --set run.name=$name --set train.steps=1000000 --set checkpoint.every=0 "$@" > "$WORK/out" 2> "$WORK/err" < \
    /dev/null &
  guard=$!
  wait_until 60 has_logged "$WORK/runs/$name" 0 3
}
start_job hang --max-restarts 0 --set launch.hang_timeout_s=$((5 * $(pace)))
kill -STOP "$(pid_of "$WORK/runs/hang" 0 1)"
timed wait "$guard"
check_eq "a job's hang: 137" 137 "$rc"
check_match "a job's hang: who" "rank 1 .*made no progress.*; 1 other rank was stopped" "$(last)"
within "a job's hang: all are killed at once" 0 60
start_job stop
kill -STOP "$(pid_of "$WORK/runs/stop" 0 1)"
kill -TERM "$guard"; timed wait "$guard"
check_eq "a signal to a job: 143" 143 "$rc"
within "a signal to a job: all are killed at once" 0 60
start_job again --max-restarts 1
kill -STOP "$(pid_of "$WORK/runs/again" 0 0)"
kill -KILL "$(pid_of "$WORK/runs/again" 0 1)"
check "a failure of a job: it goes on at once" wait_until 60 has_logged "$WORK/runs/again" 1 1
check_match "a failure of a job: which" "rank 1 .*was killed by SIGKILL.*; 1 other rank was stopped; starting again" "$(grep 'starting again' "$WORK/err")"
kill -TERM "$guard"; wait "$guard"
start_job nosave --shutdown-timeout 2 --save-on-signal --set checkpoint.every=500000
kill -STOP "$(pid_of "$WORK/runs/nosave" 0 1)"
kill -TERM "$guard"; timed wait "$guard"
check_eq "a save on notice that does not come: 143" 143 "$rc"
within "after the grace" 1 25

# Passed on: every worker of every node, from whichever node, and nothing ends.
rm -f "$WORK/usr"
nodes 4 --nproc-per-node 2 --forward-signals USR1,SIGUSR2 --no-python \
  "$toy" "catch=10:$WORK/usr" "catch=12:$WORK/usr" "$here" hang
kill -USR1 "${pids[0]}"
check "passed on from node 0: every worker of both" wait_until 30 lines_in 4 "$WORK/usr"
kill -USR2 "${pids[1]}"
check "passed on from node 1: every worker of both" wait_until 30 lines_in 8 "$WORK/usr"
check_eq "each once" "0 10 0 12 1 10 1 12 2 10 2 12 3 10 3 12" "$(sort "$WORK/usr" | tr '\n' ' ' | sed 's/ $//')"
check "and nothing ended" eval 'kill -0 "${pids[0]}" && kill -0 "${pids[1]}"'
kill -TERM "${pids[1]}"; wait "${pids[1]}"; check_eq "TERM still stops: 143" 143 $?
wait "${pids[0]}"; check_eq "on both" 143 $?
rm -f "$WORK/usr"
start 2 --nproc-per-node 2 --forward-signals USR1 -- "$toy" rank=1 "catch=10:$WORK/usr" "$here" hang
kill -USR1 "$guard"; wait_until 30 lines_in 1 "$WORK/usr"
check "a worker that it would end is not sent it, and named" wait_until 30 grep -q "rank 0 .*does not handle SIGUSR1" "$WORK/err"
check "nor ended" kill -0 "$(awk '$1 == 0 {print $2}' "$WORK/pids")"
kill -TERM "$guard"; wait "$guard"

# A worker that stays in state D for longer than PyTorch's variable allows ends the run, whatever restarts are
# left. A vfork() is such a sleep, and one that KILL ends.
rm -f "$WORK/lives"
TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=0.5 timed timeout -k 5 3000 "$FSDPRUN" --nproc-per-node 2 --max-restarts 3 \
  --shutdown-timeout 1 -- "$toy" "touch=$WORK/lives" rank=1 vfork hang 2> "$WORK/err"
check_eq "a worker that stays in state D ends the run: 137" 137 "$rc"
check_match "which the last line says" \
  "rank 1 .* made no progress.*: uninterruptible sleep \(state D\) for [0-9.]+ s, waits in [a-z_?]+; a restart would not help" "$(last)"
check_eq "without a restart" 2 "$(grep -c . "$WORK/lives")"

# A worker that sleeps in the kernel, where KILL does not reach it.
mkdir "$WORK/hang"
"$TOY/hang_fuse" "$WORK/hang" "$WORK/mounted" & fuse=$!
if wait_until 5 test -e "$WORK/mounted" -o ! -d "/proc/$fuse/fd"; [ -e "$WORK/mounted" ]; then
  # Rank 1 sleeps in the kernel; rank 0 fails when it does. Each run opens another file: the kernel asks once
  # for a name, and whoever wants the same one waits without a request.
  cat > "$WORK/sleeper" << 'END'
#!/bin/sh
[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
[ "$RANK" = 1 ] && { echo $$ > "$1.pid"; exec cat "$1/$2-$4"; }
until [ -s "$1.pid" ] && grep -qx "$(cat "$1.pid")" "$3"; do sleep 0.05; done
exit 3
END
  chmod +x "$WORK/sleeper"; set -- "$WORK/sleeper" "$WORK/hang" "$mark" "$WORK/mounted"
  timed "$FSDPRUN" --nproc-per-node 2 --shutdown-timeout 0 --log-dir "$WORK/d" --no-python "$@" first 2> "$WORK/err"
  check_eq "a worker in state D does not hold the end up: the status of what failed" 3 "$rc"
  within "it is left behind 5 s after KILL" 4 25
  check_match "it is named, with its state and where it waits" \
    "rank 1 \(pid [0-9]+\) cannot be killed: state [DSK], waits in [a-z_]+; it is left behind" \
    "$(cat "$WORK/err")"
  check_match "the first cause is still the last line" "rank 0 .*exited with status 3" "$(last)"
  check "events.jsonl has it" grep -q '"event": *"left_behind".*"rank": *1' "$WORK"/d/*/events.jsonl
  rm "$WORK/hang.pid"
  timed "$FSDPRUN" --nproc-per-node 2 --shutdown-timeout 0 --max-restarts 1 --no-python "$@" second 2> "$WORK/err"
  check_eq "a restart goes on without it" 0 "$rc"
  check_eq "it is named once, and not waited for again" 1 "$(grep -c 'left behind' "$WORK/err")"

  # After a signal everything makes the end wait as long as it can: a worker in state D, output that is
  # captured and output that is not for a reader that takes nothing, and the last line for the same reader.
  cat > "$WORK/slow" << 'END'
#!/bin/sh
echo "$RANK $$" >> "$1.pids"
[ "$RANK" = 0 ] && exec cat "$1/$2-slow"
until [ -e "$1.full" ]; do sleep 0.05; done
while :; do echo "a line of rank $RANK"; done
END
  chmod +x "$WORK/slow"; rm -f "$WORK/hang.pids"
  mkfifo "$WORK/unread"
  exec 8<> "$WORK/unread"
  "$FSDPRUN" --nproc-per-node 3 --shutdown-timeout 0 --tee 0:0,1:3,2:0 --log-dir "$WORK/slow.d" --no-python \
    "$WORK/slow" "$WORK/hang" "$mark" > "$WORK/unread" 2>&1 < /dev/null 8<&- &
  guard=$!
  wait_until 30 lines_in 3 "$WORK/hang.pids"
  wait_until 30 grep -qx "$(awk '$1 == 0 { print $2 }' "$WORK/hang.pids")" "$WORK/mounted"
  dd if=/dev/zero of="$WORK/unread" oflag=nonblock bs=4096 2> /dev/null
  touch "$WORK/hang.full"
  # Rank 1 has written what is captured, and rank 2 more than its pipe holds of what is not.
  wait_until 30 test -s "$(find "$WORK/slow.d" -name stdout.log -path '*/1/*')"
  wait_until 30 grep -q pipe "/proc/$(awk '$1 == 2 { print $2 }' "$WORK/hang.pids")/wchan"
  kill -TERM "$guard"; timed wait "$guard"
  check_eq "the guard waits longer than everything that the agent waits for: 143" 143 "$rc"
  check "each of them was waited for ($took s)" [ "$took" -ge 15 ]
  exec 8<&-

  kill "$fuse"; wait "$fuse" 2> /dev/null; fuse=
  check "they die when the file system lets go" wait_until 20 none_alive "$mark"
  umount -l "$WORK/hang" 2> /dev/null
else
  skip "a worker in state D" "a hanging file system needs root and /dev/fuse"
  fuse=
fi
