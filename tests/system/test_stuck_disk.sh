# Two nodes whose run directory, or whose program, does not answer for longer than a node may be silent. The
# agents keep talking to each other, so nothing ends or starts again because of the disk.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
. tests/support/shell/disk.sh
cd "$WORK" || exit 1
holder='' fuse=''
at_exit() { thaw; kill -KILL $fuse; umount -l "$WORK/hang"; kill_agents; kill $holder; disk_down; } 2> /dev/null
disk_up > /dev/null 2>&1 || { skip "a stuck disk and two nodes" "$disk_needs"; exit 0; }

# agent NAME NODE ARGS...: the agent of one of two nodes
port=$(port_block)
agent() {
  begin "$1-$2" timeout -k 5 600 "$BIN/fsdprun" --nnodes 2 --node-rank "$2" --rdzv-endpoint 127.0.0.1:$port --insecure "${@:3}"
}
# both NAME ARGS...: an agent for each of two nodes
both() {
  port=$((port + 1))
  agent "$1" 0 "${@:2}"
  agent "$1" 1 "${@:2}"
}
ended_early() { [ -e "$1-0.rc" ] || [ -e "$1-1.rc" ]; }
any_ended_early() { local name; for name in "$@"; do ! ended_early "$name" || return 0; done; return 1; }
# stands TITLE NAME: both agents live
stands() { if ended_early "$2"; then not_ok "$1" "$(tail -n 5 "$2-0.out" "$2-1.out")"; else ok "$1"; fi; }
# forms NAME COMMAND...: the command is true soon
forms() { wait_until 120 "${@:2}" || { not_ok "the world of $1 forms" "$(cat "$1"-?.out)"; exit 1; }; }

# The end of rank 1 is an event, which node 0 cannot write.
both event --run-dir "$disk/event" -- "$TOY/toy" touch=event.started rank=1 wait=event.one rank=0 wait=event.go
# Rank 1 dies: the folders of the next generation wait for the disk.
both again --max-restarts 1 --run-dir "$disk/again" -- "$TOY/toy" touch=again.started rank=1 gen=0 wait=again.die \
  rank=1 gen=0 exit=3 wait=again.go
# A program whose output is kept: its log files do not take what it prints.
both logs --tee 3 --redirects 0 --run-dir "$disk/logs" -- "$TOY/toy" touch=logs.started say=before wait=logs.on flood=5000 \
  say=after touch=logs.after wait=logs.go
for name in event again logs; do forms $name lines $name.started 2; done
# A program whose leader is lost: the node that has taken its place has to write that it leads to that disk.
port=$((port + 1))
taken() { # N
  begin "taken-$1" timeout -k 5 600 "$BIN/fsdprun" --nnodes 2:3 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" --local-addr "127.0.0.$1" --insecure \
    --run-dir "$disk/taken" -- "$TOY/toy" touch=taken.started wait=taken.go
}
taken 1
wait_until 30 has taken-1 "this node hosts"
taken 2
taken 3
forms taken lines taken.started 3
power_off taken-1
forms taken lines taken.started 5
# Byte 96 of each of the two places for records of its term says whether it may go on without the disk.
may_go_on() {
  local at
  for at in 16384 20480; do [ "$(od -An -tu1 -j$((at + 96)) -N1 "$disk/taken/leader/record" | xargs)" = 1 ] || return 1; done
}
forms taken may_go_on
# A job: its logs, events and figures stand still with the disk, and then it goes on where it was. Two ranks that share
# their CPUs unknowingly have a thread each: with more, one waits for what the other holds.
tiny_job "$WORK/job.yaml"
both job "$WORK/job.yaml" --nproc-per-node 1 --set run.dir="$disk" --set run.name=job --set train.steps=1000 \
  --set launch.threads=1
forms job has_logged "$disk/job" 0 6
echo '{"message": "what it said"}' > "$disk/again/attempt_0/1/error.json"

freeze
touch event.one again.die logs.on
check "workers that print go on" wait_until 30 lines logs.after 2
wait_at_most 6 any_ended_early event again logs job # twice as long as a node may be silent
stands "an event that the disk does not take ends neither node" event
stands "a restart that the disk holds up ends neither node" again
check_eq "and starts no worker before the disk answers" 2 "$(wc -l < again.started)"
stands "lines that no log takes end neither node" logs
stands "a job whose disk stands still ends on neither node" job
check_eq "a leader that took over goes on, because it is in contact with whom it let in" "" \
  "$(grep -h "may not lead it any more" taken-2.out taken-3.out)"
thaw
check "then the workers are started" wait_until 30 lines again.started 4
touch event.go again.go logs.go taken.go
check_ends "both end with 0 once the event is written" "0 0" event-0 event-1
check_eq "it is there once" 1 "$(grep '"event": *"exit"' "$disk/event/events.jsonl" | grep -c '"rank": *1')"
check_ends "both end with 0 after the restart" "0 0" again-0 again-1
check_ends "both end with 0 after the take-over" "0 0" taken-2 taken-3
check_eq "and have started nothing again" 5 "$(wc -l < taken.started)"
check_eq "it was one restart" 1 "$(grep -c '"event": *"restart"' "$disk/again/events.jsonl")"
check_match "whose reason was read while the disk took nothing" "what it said" \
  "$(grep '"event": *"failure"' "$disk/again/events.jsonl")"
check_ends "both end with 0 once the logs take lines again" "0 0" logs-0 logs-1
for rank in 0 1; do
  check_eq "the log of rank $rank has every line" "before after" \
    "$(grep -xE 'before|after' "$disk/logs/attempt_0/$rank/stdout.log" | xargs)"
done
check "and the console shows them" has logs-1 '^\[default0\]:after$'
check_ends "the job ends with 0" "0 0" job-0 job-1
check_eq "each of its steps is there once" 1000 "$(figures "$disk/job" | wc -l)"
check_eq "it has started no generation again" 0 "$(grep -c '"event": *"restart"' "$disk/job/events.jsonl")"

mkdir hang
"$TOY/hang_fuse" hang mounted & fuse=$!
if wait_until 5 test -e mounted -o ! -d "/proc/$fuse/fd"; [ -e mounted ]; then
  # The error file of rank 1 does not answer, in two generations: its path leads to the file system that hangs. Rank 0
  # fails later, and is reported first.
  both late --max-restarts 1 --run-dir "$WORK/late" -- "$TOY/toy" touch=late.started rank=1 gen=0 wait=late.die \
    rank=1 gen=0 exit=3 rank=1 wait=late.die1 rank=1 exit=3 wait=late.died exit=4
  forms late lines late.started 2
  ln -s "$PWD/hang/error.json" late/attempt_0/1/error.json
  touch late.die
  check "an error file that does not answer holds up no restart" wait_until 5 lines late.started 4
  check "it was asked for" lines mounted 1
  check "and the rank is named" has late-1 "rank 1: its error file cannot be read: no answer of the disk"
  ln -s "$PWD/hang/error.json" late/attempt_1/1/error.json
  touch late.die1
  died=$(awk '$1 == 1 { pid = $2 } END { print pid }' late.started)
  wait_until 5 test ! -e "/proc/$died"
  touch late.died
  check "nor does it hold up the end" wait_until 10 test -e late-0.rc -a -e late-1.rc
  check_eq "and what is reported late still came first" "3 3" "$(rcs late-0 late-1)"

  # The run directory of node 1 does not answer when a generation begins for the first time.
  port=$((port + 1))
  agent open 0 --arbiter none --run-dir "$WORK/open" -- "$TOY/toy" touch=open.started wait=open.go
  wait_until 30 has open-0 "this node hosts"
  agent open 1 --arbiter none --run-dir "$WORK/hang/open" -- "$TOY/toy" touch=open.started wait=open.go
  check "a run directory that cannot be opened is named" \
    wait_until 30 has open-1 "no worker is started after 10 s: the disk does not answer"
  stands "and ends neither node" open
  { kill -KILL "$fuse"; wait "$fuse"; } 2> /dev/null
  check_ends "a directory that fails ends both" "74 74" open-0 open-1
  check "... and the host says which" has open-0 "rank 1 .*hang"
else
  skip "an error file that does not answer, and a run directory that cannot be opened" "needs root and /dev/fuse"
fi

# A program whose exec waits. The kernel makes it wait for the holder of a lease on the file, for 45 s at
# most, as it would for a file system that does not answer.
lease='import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
open(sys.argv[1] + ".held", "w").close()
signal.pause()'
# hold NAME: a program of that name whose exec waits until the process $holder is gone
hold() {
  cp "$TOY/toy" "$1"
  python3 -c "$lease" "./$1" &
  holder=$!
  wait_until 30 test -e "$1.held"
}
let_go() { kill "$holder"; wait "$holder" 2> /dev/null || :; }
# one_waits NAME ARGS...: two agents, of which node 1 has a program whose exec waits
one_waits() {
  hold "$1"
  port=$((port + 1))
  agent "$1" 0 -- "$TOY/toy" "${@:2}"
  agent "$1" 1 -- "./$1" "${@:2}"
}
# executing NAME: has this agent a child that is still a copy of it?
executing() { pgrep -P "$(inner_of "$1")" -x fsdprun-agent; }
if ! command -v python3 > /dev/null; then
  skip "an exec that waits" "no python3"
  exit 0
fi
one_waits slow touch=slow.started lines=2:slow.started
check "an exec that waits is named with its rank" \
  wait_until 15 has slow-1 "rank 1 (pid .*): exec of ./slow: no answer for 10 s (state"
check_eq "and ends neither node" "none none" "$(rcs slow-0 slow-1)"
let_go
check_ends "they go on when it does" "0 0" slow-0 slow-1
check_eq "without a second start" 2 "$(wc -l < slow.started)"

one_waits never touch=never.started wait=never.go
check "node 1 waits for its exec" wait_until 30 executing never-1
check "node 0 does not" wait_until 30 lines never.started 1
signal never-1 TERM
check_ends "a stop does not wait for it" "143 143" never-0 never-1
check_eq "and its program never runs" 1 "$(wc -l < never.started)"
let_go
