# Copies of snapshots in the memory of another node (checkpoint.replicas). A node is lost with all its memory, a spare
# takes its seat, and the job goes on from memory, to the bit as an undisturbed run.
# Long
# FSDP_NIGHTLY=1: more losses; FSDP_TEST_LOSSES: so many.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; netns_down; }
LOSSES=${FSDP_TEST_LOSSES:-3}
[ -z "${FSDP_NIGHTLY:-}" ] || LOSSES=100
seed=${FSDP_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "# FSDP_TEST_SEED=$seed" >&2
port=$(port_block)
cd "$WORK" || exit 1
new_secret secret
tiny_job job.yaml
# Twenty steps a second, so that no job is over before its test disturbs it.
mkdir bin && cp "$BIN/fsdprun" bin/ && cp "$TOY/fsdp_train_mutant" bin/fsdp-train
export FSDP_TEST_SLOW=data:0:50

# agent NAME I NODES RANKS OPTIONS...: the agent NAME-I of a job; 1 hosts. Its host is $at, which runs it by $on.
at=127.0.0.1 on=()
agent() {
  local name=$1 i=$2 nodes=$3 ranks=$4
  shift 4
  begin "$name-$i" "${on[@]}" timeout -k 5 900 "${trace[@]}" "$WORK/bin/fsdprun" --nnodes "$nodes" --rdzv-backend c10d \
    --rdzv-endpoint "$at:$port" --secret-file secret job.yaml --nproc-per-node "$ranks" --set launch.threads=1 \
    --set run.name="$name" --rdzv-conf lease=3 --max-restarts 999 --set checkpoint.every=99999 \
    --set checkpoint.snapshot_every=1 --set checkpoint.replicas=1 "$@"
  [ "$i" != 1 ] || wait_until 30 has "$name-1" "this node hosts"
}
# node NAME I STEPS: one of two nodes with two ranks each, or their spare, on an address of loopback
node() { agent "$1" "$2" 2 2 --local-addr "127.0.0.$2" --set train.steps="$3"; }
# sources RUN: from where its generations went on; "other" for each that is neither memory nor a peer
sources() { sed -n 's/.*"event": *"resume".*"source": *"\([a-z]*\)".*/\1/p' "runs/$1/events.jsonl"; }
# same_end TITLE CALM RUN STEPS
same_end() {
  local last
  last=$(printf 'checkpoints/step-%08d' "$4")
  check_eq "$1: every figure is the calm run's" "$(figures "runs/$2")" "$(figures "runs/$3")"
  check_eq "... and the final state, to the bit" "$(payloads "runs/$2/$last")" "$(payloads "runs/$3/$last")"
}

# Sums have an order that depends on the nodes, so the calm run is of two nodes too. Nothing is on the disk before the
# last step, so whatever a rank goes on from is in memory. A node, a rank or a process that copies is lost at any moment.
STEPS=$((LOSSES * 60 + 20))
node calm 1 $STEPS
node calm 2 $STEPS
port=$((port + 1))
node hit 1 $STEPS
node hit 2 $STEPS
wait_until 60 has_logged runs/hit 0 1
node hit 3 $STEPS
wait_until 60 has hit-3 "as a spare"
member=2 spare=3 generation=0 peers=0 lost=0
for ((loss = 0; loss < LOSSES; loss++)); do
  wait_until 120 has_logged runs/hit $generation $((RANDOM % 20 + 5)) || break
  case $((loss % 3)) in
  0)
    power_off "hit-$member"
    ended "hit-$member"
    member=$spare spare=$((spare + 1)) peers=$((peers + 1))
    node hit $spare $STEPS
    ;;
  1) kill -KILL "$(pid_of runs/hit $generation $((RANDOM % 4)))" ;;
  2)
    # what it was copying is lost, and nothing else
    kill -KILL "$(pgrep -P "$(inner_of hit-1)" -x fsdp-copies)"
    wait_until 60 has hit-1 "snapshots of this node are not copied to another one any more"
    kill -KILL "$(pid_of runs/hit $generation 0)"
    ;;
  esac
  lost=$((lost + 1)) generation=$((generation + 1))
done
ended calm-1 calm-2
check_ends "with $LOSSES losses the job ends with 0" "0 0" hit-1 "hit-$member"
check_eq "so many things were lost" $LOSSES $lost
check_eq "every generation went on from memory" "$LOSSES" "$(sources hit | grep -c 'memory\|peer')"
check_eq "... of another node, as often as a node was lost" $peers "$(sources hit | grep -c peer)"
check_eq "none lost more steps than were on their way" "" \
  "$(sed -n 's/.*"event": *"timeline".*"lost_steps": *\([0-9]*\).*/\1/p' runs/hit/events.jsonl | grep -v '^[0-3]$')"
same_end losses calm hit $STEPS
check_eq "no process is left that copies" "" \
  "$(for pid in $(pgrep -x fsdp-copies); do readlink "/proc/$pid/exe"; done | grep "^$WORK")"

# The leader is lost. Another node leads, and the spare takes the seat of the lost one.
port=$((port + 1))
node led 1 $STEPS
node led 2 $STEPS
wait_until 60 has_logged runs/led 0 1
node led 3 $STEPS
wait_until 60 has led-3 "as a spare"
wait_until 60 has_logged runs/led 0 25
power_off led-1
check_ends "the leader is lost: the others end with 0" "0 0" led-2 led-3
check_eq "they went on from the memory of another node" peer "$(sources led)"
same_end "a lost leader" calm led $STEPS

# Three nodes and a spare in namespaces. The run begins from a checkpoint. After the loss no file of it is opened.
netns_up 4 || { skip "a lost node in namespaces" "needs root, ip, nft and bridges for network namespaces"; exit 0; }
strace -f -o probe true 2> /dev/null || { skip "a lost node in namespaces" "strace is not there, or may not trace"; exit 0; }
host() { # NAME I STEPS OPTIONS...
  local name=$1 i=$2
  on=(on_node $((i - 1)))
  shift 3
  agent "$name" "$i" 3 1 "$@"
}
at=10.77.77.1
for name in quiet traced; do
  port=$((port + 1))
  for i in 1 2 3; do host $name $i 5 --set train.steps=5; done
  check_ends "$name: three nodes with one checkpoint end with 0" "0 0 0" $name-{1,2,3}
  port=$((port + 1))
  for i in 1 2 3 4; do
    trace=()
    [ "$name $i" = "quiet 4" ] && continue
    [ $name != traced ] || [ $i = 3 ] || trace=(env "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0" strace -f -ttt -o "trace.$i" -e "trace=open,openat,openat2")
    [ $i != 4 ] || wait_until 60 has_logged runs/traced 0 7
    host $name $i 5 --set train.steps=100
  done
  trace=()
  [ $name != traced ] || break
  ended quiet-1 quiet-2 quiet-3
done
wait_until 60 has traced-4 "as a spare"
wait_until 60 has_logged runs/traced 0 25
when=$(date +%s.%N)
power_off traced-3
check_ends "a node of three is lost in namespaces: the others and the spare end with 0" "0 0 0" traced-1 traced-2 traced-4
check_eq "they had begun with the disk, and went on from the memory of another node" "disk peer" "$(sources traced | xargs)"
check_match "(the first generation opened the checkpoint)" 'shard-0000.*safetensors' "$(cat trace.1)"
# retention looks at it again, after the last save
check_eq "after the loss no process opened a file of it" "" \
  "$(for i in 1 2 4; do awk -v when="$when" '$2 > when' trace.$i | sed '/\.step-00000100/,$d' | grep -aE '"([^"]*/)?(step-|shard-|manifest)'; done)"
same_end "a lost node of three" quiet traced 100
