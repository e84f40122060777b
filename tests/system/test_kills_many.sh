# Processes of jobs that copy after every step and save after every third are killed at random instants: ranks, those
# that write checkpoints, those that copy to another node, and agents. Each job ends to the bit as one that nothing
# has disturbed, and leaves nothing.
# FSDP_TEST_KILLS=N kills on one node (60; FSDP_NIGHTLY=1: 2,000), FSDP_TEST_PAIR_KILLS=N on two (20; 500); FSDP_TEST_SEED.
# Nightly: faults
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
STEPS=200
KILLS=${FSDP_TEST_KILLS:-60} PAIR_KILLS=${FSDP_TEST_PAIR_KILLS:-20}
[ -z "${FSDP_NIGHTLY:-}" ] || KILLS=${FSDP_TEST_KILLS:-2000} PAIR_KILLS=${FSDP_TEST_PAIR_KILLS:-500}
seed=${FSDP_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "# FSDP_TEST_SEED=$seed" >&2
at_exit() { kill_agents; }
cd "$WORK" || exit 1
tiny_job job.yaml
new_secret secret
mkdir bin && cp "$BIN/fsdprun" "$BIN/fsdp-train" bin/ # a process of ours is known by its program
port=$(port_block)
last=$(printf 'checkpoints/step-%08d' $STEPS)

# start NAME NODE: the agent NAME-NODE of $nodes nodes
start() {
  local several=()
  [ $nodes = 1 ] || several=(--nnodes $nodes --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" --secret-file secret
    --local-addr "127.0.0.$2" --rdzv-conf lease=3 --set launch.threads=1 --set checkpoint.replicas=1)
  begin "$1-$2" timeout -k 5 900 bin/fsdprun job.yaml --nproc-per-node $ranks "${several[@]}" --max-restarts 100000 --set run.name="$1" \
    --set train.steps=$STEPS --set checkpoint.every=3 --set checkpoint.keep=2 --set checkpoint.snapshot_every=1
}
# start_all NAME: all its agents; the first one hosts
start_all() {
  local node
  port=$((port + 1))
  for ((node = 1; node <= nodes; node++)); do
    start "$1" $node
    [ $nodes = 1 ] || [ $node != 1 ] || wait_until 30 has "$1-1" "this node hosts"
  done
}
names() { for ((node = 1; node <= nodes; node++)); do echo "$1-$node"; done; }
all_end() { ended $(names "$1"); [ -z "$(rcs $(names "$1") | tr -d '0 ')" ]; }
end_of() { figures "runs/$1"; payloads "runs/$1/$last"; }
logged() { wc -l < runs/hit/metrics.jsonl; }
near_end() { [ "$(tail -n 1 runs/hit/metrics.jsonl | number step)" -gt $((STEPS - 60)) ]; }
logged_or_ended() { [ "$(logged)" -ge "$1" ] || one_ended; }
one_ended() { local n; for n in $(names hit); do [ ! -e "$n.rc" ] || return 0; done; return 1; }
processes() { local pid; for pid in $(pgrep -x 'fsdprun|fsdprun-agent|fsdp-.*'); do readlink "/proc/$pid/exe"; done | grep "^$WORK"; }
# victim_of KIND NAME: its pid
victim_of() {
  local agent
  agent=$(inner_of "$2" 2> /dev/null) # none while it starts
  [ -n "$agent" ] || return
  case $1 in
  agent) echo "$agent" ;;
  writer) pgrep -P "$agent" -x fsdp-disk ;;
  copier) pgrep -P "$agent" -x fsdp-copies ;;
  rank) pgrep -P "$agent" -x fsdp-train | shuf -n 1 --random-source=<(yes "$RANDOM") ;;
  esac
}

# campaign TITLE NODES RANKS KILLS KIND...: jobs of so many nodes with so many ranks each; the kinds are as likely as they
# are often named
campaign() {
  local title=$1 most=$4 total=0 rounds=0 wrong='' calm kinds node kind victim left
  nodes=$2 ranks=$3
  shift 4
  kinds=("$@")
  local -A killed=()
  for kind in "${kinds[@]}"; do killed[$kind]=0; done
  start_all calm$nodes
  check "$title: the undisturbed run ends with 0" all_end calm$nodes
  calm=$(end_of calm$nodes)
  while [ $total -lt "$most" ] && [ -z "$wrong" ]; do
    rm -rf runs/hit; rounds=$((rounds + 1))
    start_all hit
    while ! one_ended && [ $total -lt "$most" ]; do
      wait_until 120 logged_or_ended $(($(logged 2> /dev/null) + RANDOM % 10 + 1)) || { wrong="round $rounds: no step for two minutes"; break; }
      read -rt "0.0$((RANDOM % 90 + 10))" <> <(:) # an instant that no step decides
      kind=${kinds[RANDOM % ${#kinds[@]}]} node=$((RANDOM % nodes + 1))
      # of two agents, one that is killed after the last step would wait for the other, which has ended
      [ $kind != agent ] || [ $nodes = 1 ] || ! near_end || kind=rank
      victim=$(victim_of $kind hit-$node)
      [ -n "$victim" ] && kill -KILL "$victim" 2> /dev/null || continue
      killed[$kind]=$((killed[$kind] + 1)) total=$((total + 1))
      [ $kind = agent ] || continue
      ended hit-$node
      start hit $node # it goes on from the disk, or from the memory of the other node
    done
    [ -z "$wrong" ] || break
    all_end hit || wrong="round $rounds ended with $(rcs $(names hit)): $(tail -n 2 hit-*.out)"
    [ "$calm" = "$(end_of hit)" ] || wrong="$wrong; round $rounds: other figures or another state"
    left=$(find runs/hit/checkpoints -mindepth 1 -name '.*' ! -name .lock; processes)
    [ -z "$left" ] || wrong="$wrong; round $rounds left $left"
  done
  echo "# $title: killed in $rounds runs:$(for kind in "${!killed[@]}"; do echo -n " $kind ${killed[$kind]}"; done)" >&2
  check_eq "$title: each run ends with 0, with the figures and the state of the undisturbed one, and leaves nothing" "" "$wrong"
  check "$title: so many were killed" test $total -ge "$most"
  for kind in "${!killed[@]}"; do check "$title: ... a $kind, too" test "${killed[$kind]}" -gt 0; done
}
campaign "one node" 1 3 "$KILLS" rank rank rank rank rank rank rank writer writer agent
campaign "two nodes" 2 2 "$PAIR_KILLS" rank rank rank writer copier agent
