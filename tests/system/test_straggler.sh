# Stragglers: a rank that is slower than the others is named once, with what it does; ranks that are all slow
# are not. Slowness is sleep, so that these runs measure the same on any machine.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; }
cd "$WORK" || exit 1
tiny_job job.yaml
mkdir bin && cp "$BIN/fsdprun" bin/ && cp "$TOY/fsdp_train_mutant" bin/fsdp-train
export FSDP_TEST_MUTANT=slow FSDP_TEST_PACE_MS=1000
port=$(port_block)
# job NAME SLOW ARGS...: an agent for a job that goes on until it is stopped
job() {
  local name=$1 slow=$2; shift 2
  FSDP_TEST_SLOW=$slow begin "$name" timeout -k 5 900 "$WORK/bin/fsdprun" job.yaml --set run.name="${name%-?}" --set run.log_every=1000 \
    --set train.steps=1000000 --set checkpoint.every=0 "$@"
}
stragglers() { sed -n '/"event": *"straggler"/s/.*"rank": *\([0-9]*\),.*"class": *"\([a-z]*\)".*/\1 \2/p' "runs/$1/events.jsonl" 2> /dev/null; }
has_straggler() { [ -n "$(stragglers "$1")" ]; }

goes_on_without() { sed '1,/"slow_rank"/d' "runs/$1/events.jsonl" 2> /dev/null | grep -q '"event": *"first_step"'; }

# the control comes to its end by itself, after 20 windows and more
job even data:0:100,data:1:100,data:2:100 --nproc-per-node 3 --set train.steps=250
job data data:1:500 --nproc-per-node 3
for node in 0 1; do
  job idle-$node step:3:500 --nproc-per-node 2 --nnodes 2 --node-rank $node --rdzv-endpoint 127.0.0.1:$port --insecure
done
# of two nodes one may be missing
for node in 0 1; do
  job aside-$node step:3:500 --straggler restart --nproc-per-node 2 --nnodes 1:2 --node-rank $node --rdzv-endpoint 127.0.0.1:$((port + 1)) --insecure
done
wait_until 300 has_straggler data
wait_until 300 has_straggler idle
wait_until 300 goes_on_without aside
wait_until 300 test -e even.rc
for name in data idle-0 aside-0; do signal $name TERM; done
check_ends "the jobs went on" "143 143 143 143 143 0" data idle-0 idle-1 aside-0 aside-1 even

check_eq "a rank whose data comes late is a straggler, and no other rank" "1 data" "$(stragglers data)"
check_match "it is named with what it does" \
  "^fsdprun: rank 1 \($(hostname)\) waits for its data, and the other ranks wait for it: [0-9.]+ ms of its own in each step, the median of 3 ranks is [0-9.]+ ms" \
  "$(grep 'wait for it' data.out)"
check_eq "once" 1 "$(grep -c 'wait for it' data.out)"
check_eq "a rank of another node that does nothing for a while is one" "3 idle" "$(stragglers idle)"
check_match "the host's console names it" "^fsdprun: rank 3 \(.*\) stands still at times, .*median of 4 ranks" "$(grep 'wait for it' idle-0.out)"
check_match "with --straggler restart its node is set aside" "^fsdprun: .* waits 60 min before it takes part again, because rank 3 is slow" "$(grep '60 min' aside-0.out)"
check_eq "the job goes on without the node, and counts no restart" "1 0" \
  "$(grep -c '"event": *"quarantine".*"slow_rank": *3' runs/aside/events.jsonl) $(grep -c '"event": *"restart"' runs/aside/events.jsonl)"
check_eq "from the step that it has saved" 1 "$(grep '"event": *"resume", *"generation": *1' runs/aside/events.jsonl | grep -vc '"step": *0[,}]')"
check_eq "in a job whose ranks are all slow there is none" "" "$(stragglers even; grep 'wait for it' even.out)"
