# GPUs of a node are leased between the jobs of its agent: order, waiting, what frees them, the end of the agent.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
F=$BIN/fsdprun A=$BIN/fsdp-agent
S=$WORK/own/agent.sock
export XDG_RUNTIME_DIR=$WORK/runtime TMPDIR=$WORK/temporary FSDP_TEST_ROOT=$WORK/four
export FSDPRUN_AGENT=$S
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
mkdir -m 700 "$XDG_RUNTIME_DIR" "$TMPDIR"
mkdir "$WORK/held" "$WORK/go"
agent=
at_exit() { [ -z "$agent" ] || kill -KILL "$agent"; } 2> /dev/null
for i in 0 1 2 3; do
  mkdir -p "$WORK/four/proc/driver/nvidia/gpus/0000:0$i:00.0" "$WORK/four/dev"
  printf 'Model: \t NVIDIA H100\nGPU UUID: \t GPU-%s\nDevice Minor: \t %s\n' $i$i$i $i \
    > "$WORK/four/proc/driver/nvidia/gpus/0000:0$i:00.0/information"
  : > "$WORK/four/dev/nvidia$i"
done
start_agent() {
  : > "$WORK/agent-log"
  "$A" --socket "$S" 2>> "$WORK/agent-log" & agent=$!
  wait_until 20 grep -q serves "$WORK/agent-log"
}
# A program that leaves its process id at each of its GPUs until its name is in $WORK/go. One that is killed leaves
# it there for good.
cat > "$WORK/holds" << 'SH'
#!/bin/sh
if [ "$LOCAL_RANK" = 0 ]; then
  for i in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    ! kill -0 "$(readlink "$WORK/held/$i")" 2> /dev/null || echo "$i" >> "$WORK/twice"
    ln -sfn $$ "$WORK/held/$i"
  done
  echo "$TORCHELASTIC_RUN_ID $CUDA_VISIBLE_DEVICES" >> "$WORK/ran"
fi
while [ ! -e "$WORK/go/$TORCHELASTIC_RUN_ID" ] && [ ! -e "$WORK/go/all" ]; do sleep 0.02; done
exit 0
SH
chmod +x "$WORK/holds"
export WORK
# holding NAME N OPTIONS...: a job of N workers, attached
holding() {
  local name=$1 n=$2; shift 2
  env --default-signal=INT "$F" --rdzv-id "$name" --nproc-per-node "$n" "$@" "$WORK/holds" > "$WORK/$name.out" 2>&1 &
  pid=$!
}
# detached NAME OPTIONS...: its stdout is in $WORK/id.NAME, its stderr in $WORK/err.NAME. id_of NAME: of a job that is listed
declare -A of
detached() {
  local name=$1; shift
  env --default-signal=INT "$F" --detach "$@" > "$WORK/id.$name" 2> "$WORK/err.$name" &
  pid=$!
}
id_of() { "$F" status --json "$1" | sed -n 's/.*"job":"\([0-9]*\)".*/\1/p'; }
ran() { grep -q "^$1 " "$WORK/ran" 2> /dev/null; }
states() { "$F" ps --json | grep -o "\"state\":\"$1\"" | wc -l; }
are() { [ "$(states "$1")" = "$2" ]; }
# state NAME, gpus NAME: of the job; the GPUs that its workers were shown
state() { "$F" status --json "$1" 2> /dev/null | sed -n 's/.*"state":"\([a-z]*\)".*/\1/p'; }
is() { [ "$(state "$1")" = "$2" ]; }
gpus() { sed -n "s/^$1 //p" "$WORK/ran"; }

start_agent

# who gets which
holding a 3; a=$pid
wait_until 20 ran a
check_eq "a job sees the GPUs that it got" 0,1,2 "$(gpus a)"
holding b 2; b=$pid
check "a job for which too few are free is queued" wait_until 20 is b queued
check_match "and says for what it waits" '^fsdprun: waits for 2 GPUs: job a \([0-9]+\) holds 0-2$' "$(cat "$WORK/b.out")"
check_match "ps says it too, in the table" 'b +queued .*job [0-9]+ waits for 2 GPUs: job a ' "$("$F" ps | xargs)"
check_match "and in JSON" '"state":"queued".*"waits_for":"waits for 2 GPUs: job a ' "$("$F" ps --json)"
check_match "inspect knows its command" '"command":.*"--rdzv-id", *"b"' "$("$F" inspect b | xargs -0 printf '%s' | tr -d '\n')"
holding c 1; c=$pid
check "a small job does not pass one that came before it" wait_until 20 is c queued
check_match "it knows that one is ahead" 'waits for 1 GPU: job a .* holds 0-2; 1 job is ahead' "$("$F" ps --json)"
check_status "a queued job has nothing to restart" 75 "$F" restart c
check_status "nor can a program be asked to save" 78 "$F" stop --save c
check_status "more GPUs than the node has are refused at once" 78 "$F" --gpus 5 "$TOY/toy"
check_eq "in one line" "fsdprun: --gpus: 5 GPUs and this node has 4" "$(cat "$WORK/err")"
check_status "--gpus without an agent is refused" 2 env -u FSDPRUN_AGENT "$F" --gpus 1 "$TOY/toy"
check_eq "a job that uses no GPU waits for none" ",<>" "$("$F" --gpus 0 -- sh -c 'echo ",<$CUDA_VISIBLE_DEVICES>"')"
check_eq "nor one to which all are hidden" "<>" "$(CUDA_VISIBLE_DEVICES="" "$F" -- sh -c 'echo "<$CUDA_VISIBLE_DEVICES>"' 2> /dev/null)"
tiny_job "$WORK/train.yaml"
check_status "nor a job on the CPU" 0 "$F" --set run.device=cpu --set train.steps=1 "$WORK/train.yaml"

# leaving the queue
kill -INT "$b"; wait "$b"
check_eq "Ctrl-C leaves the queue" 130 $?
check "and the next one runs, on the GPU that was free" wait_until 20 ran c
check_eq "which is its own" 3 "$(gpus c)"
detached d --rdzv-id d --nproc-per-node 4 "$WORK/holds"; d=$pid
wait_until 20 is d queued
said="job $(id_of d) under the agent at $S waits for 4 GPUs: job a .* holds 0-2, job c .* holds 3"
check "a detached job that waits says for what" wait_until 20 grep -q "$said" "$WORK/err.d"
check_status "it can be stopped" 0 "$F" stop d
wait "$d"
check_eq "with TERM's status, which is its fsdprun's" 143 $?
check_eq "without an id on stdout" "" "$(cat "$WORK/id.d")"
check_eq "and has left nothing" "" "$(find "$TMPDIR" -name 'd_*')"
detached late --gpus 1 --set run.device=cpu --set run.name=late "$WORK/train.yaml"; late=$pid
wait_until 20 is late queued
check_status "a queued job that is stopped with --save is as one that has saved" 0 "$F" stop --save late
wait "$late"
check_eq "with its status" 77 $?
detached e --rdzv-id e --nproc-per-node 4 "$WORK/holds"; e=$pid
wait_until 20 is e queued
kill -KILL "$(id_of e)"
wait "$e"
check_eq "a queued job that is killed leaves the queue" 137 $?
for name in p q r; do
  : > "$WORK/go/$name"
  detached $name --rdzv-id $name --nproc-per-node 1 "$WORK/holds"; of[$name]=$pid
  wait_until 20 is $name queued
done
kill -HUP "${of[p]}"; kill -KILL "${of[q]}"
wait "${of[p]}" "${of[q]}" 2> /dev/null
check_eq "one whose terminal is closed stays in the queue" queued "$(state p)"
check_eq "and so does one whose fsdprun is killed" queued "$(state q)"
check_eq "a detached job that is queued keeps fsdprun until it runs" "" "$(cat "$WORK/id.r")"
: > "$WORK/go/c"; wait "$c"
check_eq "status of the job that has waited" 0 $?
wait "${of[r]}"
check_eq "then it ends with 0 and the id" "0 $(sed -n 's/.*: job \([0-9]*\) runs under .*/\1/p' "$WORK/err.r")" "$? $(cat "$WORK/id.r")"
check_eq "for what it waited was said once" 1 "$(grep -c "waits for" "$WORK/err.r")"
check "those that stayed have run before it" ran p
check "... without an fsdprun too" ran q

# a list of the user's
CUDA_VISIBLE_DEVICES=GPU-333,GPU-111 holding f 1; f=$pid
check "a list is leased as a whole" wait_until 20 is f queued
check_match "it waits for the job that has one of them" 'waits for 2 GPUs: job a \([0-9]+\) holds 1' "$(cat "$WORK/f.out")"
holding g 1; g=$pid
check "what it waits for is kept for it" wait_until 20 is g queued
CUDA_VISIBLE_DEVICES=2 holding h 1; h=$pid
wait_until 20 is h queued
kill -KILL "$(pgrep -P "$agent" -f -- '--rdzv-id a ')"; wait "$a"
check_eq "a job whose guard is killed" 137 $?
check "frees its GPUs" wait_until 20 ran f
check_eq "the names of the list stay" GPU-333,GPU-111 "$(gpus f)"
wait_until 20 ran g; wait_until 20 ran h
check_eq "and the others run on other GPUs" "0 2" "$(gpus g) $(gpus h)"
: > "$WORK/go/all"; wait "$f" "$g" "$h"
rm -rf "$WORK/go/all"
none() { [ "$("$F" ps -q | wc -l)" = 0 ]; }
check "the queue is empty" wait_until 20 none

# 20 at once
rm -f "$WORK/ran" "$WORK/twice"
: > "$WORK/agent-log"
long=(--gpus 2 --set run.device=cpu --set run.name=trains --set train.steps=1000000 --set checkpoint.every=1000000)
one_that_is() { "$F" ps --json | grep -o "\"job\":\"[0-9]*\",\"name\":\"j[0-9]*\",\"state\":\"$1\"" | tail -n 1 | grep -o '[0-9][0-9]*' | head -n 1; }
pick() { picked=$(one_that_is "$1"); [ -n "$picked" ]; }
for i in $(seq 20); do
  if [ "$i" = 5 ]; then
    wait_until 20 pick running # another one runs first: one that runs is to be killed
    detached $i "${long[@]}" "$WORK/train.yaml"
  else
    detached $i --rdzv-id "j$i" --nproc-per-node $((1 + i % 4)) "$WORK/holds"
  fi
  submits[i]=$pid
done
listed() { [ "$("$F" ps -q | wc -l)" = 20 ]; }
check "20 jobs submitted at once: ps has them all" wait_until 20 listed
many() { [ "$(states queued)" -ge 10 ]; }
check "some of them are queued" wait_until 20 many
wait_until 20 pick queued; victim=$picked; kill -KILL "$victim"
wait_until 20 pick running; kill -KILL "$picked"
: > "$WORK/go/all"
steps() { "$F" ps --json | grep -q '"name":"trains".*"step":[1-9]'; }
check "their turn comes: a job trains" wait_until 60 steps
check_status "it is stopped with --save" 0 "$F" stop --save trains
check "and has saved" test -n "$(find "$WORK/runs/trains/checkpoints" -name manifest.json)"
statuses=()
for i in $(seq 20); do wait "${submits[i]}"; statuses+=($?); done
check_eq "each submission ends with 0, but that of the job that was killed while it waited" "19 0 1 137" \
  "$(printf '%s\n' "${statuses[@]}" | sort -n | uniq -c | xargs)"
check_eq "each has had an id of its own" 19 "$(cat "$WORK"/id.[0-9]* | sort -u | grep -c '^[0-9]')"
check "all come to their end" wait_until 60 none
numbers() { sed -n "s/.*job \([0-9]*\) $1.*/\1/p" "$WORK/agent-log" | xargs; }
check_eq "they ran in order of arrival, without the one that was killed while it waited" \
  "$(numbers began | tr ' ' '\n' | grep -vx "$victim" | xargs)" "$(numbers has)"
check_eq "no GPU was given to two" "" "$(cat "$WORK/twice" 2> /dev/null)"
check_eq "two were killed, one has saved, the others ended well" "17 2 1" \
  "$(grep -c 'ended with 0' "$WORK/agent-log") $(grep -c 'ended with 137' "$WORK/agent-log") $(grep -c 'ended with 77' "$WORK/agent-log")"

# the end of the agent
rm -rf "$WORK"/go/all "$WORK"/ran
for i in 1 2 3 4 5 6; do
  detached k$i --log-dir "$WORK/logs" --rdzv-id "k$i" --nproc-per-node 2 "$WORK/holds"
  if [ "$i" -le 2 ]; then wait_until 20 ran k$i; else wait_until 20 are queued $((i - 2)); fi
done
kill -KILL "$agent"; wait "$agent" 2> /dev/null
check "SIGKILL of the agent ends jobs that run and jobs that wait" wait_until 20 none_alive "$WORK/holds"
start_agent
check_eq "ps of a new agent is empty" "" "$("$F" ps -q 2> /dev/null)"
check_eq "and says where the runs are that were killed" "k1 k2" \
  "$("$F" ps 2>&1 > /dev/null | sed -n "s|^fsdprun ps: job [0-9]* .k[12]. was killed; its run directory is $WORK/logs/\(k[12]\)_.*|\1|p" | xargs)"
check_eq "on stderr, also with --json" "[]" "$("$F" ps --json 2> /dev/null)"
check_eq "nothing else of them is left: no socket, no temporary directory" "" "$(find "$XDG_RUNTIME_DIR" "$TMPDIR" -name '*.sock' -o -name 'k[1-6]_*')"
check "jobs run again" wait_until 20 "$F" --gpus 4 "$TOY/toy"
holding m 4; m=$pid
wait_until 20 ran m
holding n 1; n=$pid
wait_until 20 is n queued
kill -TERM "$agent"; wait "$agent"; ended=$?
agent=
wait "$m"; ended+=" $?"; wait "$n"
check_eq "TERM of the agent ends jobs that run and jobs that wait, and then itself" "0 143 143" "$ended $?"
check_eq "and none of those that waited has run" "" "$(gpus n)"

# What the agent does when a job does not behave: an fsdprun in its place speaks the protocol (agent/daemon/lease.h).
if command -v python3 > /dev/null; then
  mkdir "$WORK/fake"; cp "$A" "$WORK/fake/fsdp-agent"
  cat > "$WORK/fake/fsdprun" << 'PYTHON'
#!/usr/bin/env python3
import os, socket, struct, sys, time
agent = socket.socket(fileno=int(sys.argv[1].split("=")[1]))
name, work = sys.argv[-1], os.environ["WORK"]
def until(path):
    while not os.path.exists(work + "/" + path):
        time.sleep(0.02)
if name == "silent":
    open(work + "/silent", "w").close()
    until("nothing")
agent.send(struct.pack("<I4xQQQQ64s", 1, 1, 0, 0, 0, name.encode()))  # one GPU, and only GPU 0
while True:
    answer = agent.recv(4096)
    words = answer[40:].split(b"\0")[0].decode()
    open(work + "/said." + name, "a").write((words or "granted") + "\n")
    if not words:
        break
if name == "stays" and os.fork() == 0:
    os.setsid()
    until("let-go")
    os._exit(0)
PYTHON
  chmod +x "$WORK/fake/fsdprun"
  "$WORK/fake/fsdp-agent" --socket "$WORK/fake.sock" 2> "$WORK/fake-log" & fake=$!
  wait_until 20 grep -q serves "$WORK/fake-log"
  said() { grep -q "$2" "$WORK/said.$1" 2> /dev/null; }
  env -u FSDPRUN_AGENT "$F" --agent "$WORK/fake.sock" -- stays; check_eq "a job whose guard has ended" 0 $?
  "$F" --agent "$WORK/fake.sock" -- next & next=$!
  check "keeps its GPU until its last process is gone" wait_until 20 said next "waits for 1 GPU: job stays"
  : > "$WORK/let-go"
  wait "$next"
  check_eq "then the next job gets it" granted "$(tail -n 1 "$WORK/said.next")"
  "$F" --agent "$WORK/fake.sock" -- silent & silent=$!
  wait_until 20 test -e "$WORK/silent"
  check_status "a job that never says what it needs holds up no other for long" 0 "$F" --agent "$WORK/fake.sock" -- third
  check_eq "but at first everything is kept for it" "waits for 1 GPU: 1 job is ahead granted" "$(xargs < "$WORK/said.third")"
  kill -TERM "$silent"; wait "$silent"
  kill -TERM "$fake"; wait "$fake"
else
  skip "jobs that do not behave" "there is no python3"
fi
