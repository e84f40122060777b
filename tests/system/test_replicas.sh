# Copies of snapshots in the memory of another node (checkpoint.replicas). A node is lost with all its memory, a spare
# takes its seat, and the job goes on from memory: no checkpoint is on the disk before the last step.
# Long
# FSDP_NIGHTLY=1: more losses.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; }
port=$(port_block)
cd "$WORK" || exit 1
new_secret secret
tiny_job job.yaml
# Twenty steps a second, so that no job is over before its test disturbs it.
mkdir bin && cp "$BIN/fsdprun" bin/ && cp "$TOY/fsdp_train_mutant" bin/fsdp-train
export FSDP_TEST_SLOW=data:0:50

# node NAME I OPTIONS...: the agent NAME-I of a job of two nodes with two ranks each; 1 hosts, and a third is a spare
node() {
  local name=$1 i=$2
  shift 2
  begin "$name-$i" timeout -k 5 600 "$WORK/bin/fsdprun" --nnodes "${NODES:-2}" --rdzv-backend c10d \
    --rdzv-endpoint "127.0.0.1:$port" --local-addr "127.0.0.$i" --secret-file secret job.yaml \
    --nproc-per-node 2 --set launch.threads=1 --set run.name="$name" --rdzv-conf lease=3 --max-restarts 9 \
    --set checkpoint.every=99999 --set checkpoint.snapshot_every=1 --set checkpoint.replicas=1 "$@"
  [ "$i" != 1 ] || wait_until 30 has "$name-1" "this node hosts"
}
sources() { sed -n 's/.*"event": *"resume".*"source": *"\([a-z]*\)".*/\1/p' "runs/$1/events.jsonl" | xargs; }
last=checkpoints/step-00000080

# Sums have an order that depends on the nodes, so the calm run is of two nodes too.
node calm 1 --set train.steps=80
node calm 2 --set train.steps=80
port=$((port + 1))
node one 1 --set train.steps=80
node one 2 --set train.steps=80
wait_until 60 has_logged runs/one 0 1
node one 3 --set train.steps=80
wait_until 60 has one-3 "as a spare"
wait_until 60 has_logged runs/one 0 20
power_off one-2
check_ends "a node is lost with its memory, and a spare is there: both end with 0" "0 0" one-1 one-3
check_ends "a calm run ends with 0 on both" "0 0" calm-1 calm-2
check_eq "they went on from the memory of another node" peer "$(sources one)"
check_eq "... to the bit with the figures of a calm run" "$(figures runs/calm)" "$(figures runs/one)"
check_eq "... and its weights" "$(payloads runs/calm/$last)" "$(payloads runs/one/$last)"
