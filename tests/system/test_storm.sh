# A storm: agents in network namespaces train a job of ours on a fixed number of nodes. Random faults happen
# to them, up to three at a time. After each blow the job goes on at the same size. At the end every step that
# was ever logged has the loss and the norm of an undisturbed run, bit for bit.
# Nightly: faults
# Limit: 3600 s
# FSDP_TEST_AGENTS, FSDP_TEST_FAULTS: how many; 4 and 8, in `make nightly` 16 and 200
# FSDP_TEST_SEED: what is drawn follows from it
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
at_exit() { netns_down; } 2> /dev/null
if [ -n "${FSDP_NIGHTLY:-}" ]; then n=16 faults=200; else n=4 faults=8; fi
n=${FSDP_TEST_AGENTS:-$n} faults=${FSDP_TEST_FAULTS:-$faults} seed=${FSDP_TEST_SEED:-$(date +%s)}
netns_up "$n" || { skip "a storm over $n agents" "needs root, ip, nft and bridges for network namespaces"; exit 0; }
cd "$WORK" || exit 1
port=29400 lease=$((3 * $(pace))) hang_s=$((5 * $(pace)))
RUN=$WORK/storm/tiny
tiny_job job.yaml
new_secret secret
mkdir bin
cp "$BIN/fsdprun" bin
ln -s "$TOY/fsdp_train_mutant" bin/fsdp-train
# What both runs have: five steps a second would be enough for the storm; the other run does not wait.
job=(job.yaml --set launch.threads=1 --set train.steps=1000000 --set train.global_batch=$((4 * n)) --set model.layers=1
  --set model.seq=4 --set checkpoint.every=3 --set checkpoint.keep=2)

# start NODE: its agent, as often as it has ended, as a service manager would
start() {
  local slow
  slow=$(seq -s , -f 'data:%g:150' 0 $((n - 1)))
  begin "n$1" on_node "$1" env FSDP_TEST_SLOW="$slow" timeout -k 5 3600 bin/fsdprun --nnodes "$n" --rdzv-backend c10d \
    --rdzv-endpoint "10.77.77.1:$port" --secret-file secret --rdzv-conf lease=$lease --max-restarts 1000000 "${job[@]}" \
    --nproc-per-node 1 --set run.dir="$WORK/storm" --set launch.hang_timeout_s=$hang_s
}
start_ended() {
  local i
  for ((i = 0; i < n; i++)); do
    [ -e "n$i.rc" ] || continue
    cat "n$i.out" >> "n$i.all"
    start "$i"
  done
}
# step: the last one that was logged
step() { tail -n 1 "$RUN/metrics.jsonl" | number step; }
# goes_on: has the world made five steps since the step $from? Agents that have ended begin again meanwhile.
goes_on() {
  start_ended
  pass 0.2
  [ "$(tail -n 5 "$RUN/metrics.jsonl" | head -n 1 | number time | tr -d .)" -gt "${until/./}" ]
} 2> /dev/null
seconds() { echo "${EPOCHREALTIME/,/.}"; }

# draw N: the next random number below N
RANDOM=$((seed % 32768))
draw() { drawn=$((RANDOM % $1)); }
# rank_of NODE: a worker below its agent
rank_of() { pgrep -P "$(inner_of "n$1")" -x fsdp-train; }
kinds=(rank-killed rank-crashes rank-stands-still agent-killed power-off brief-cut cut long-cut reset waits stands-still)
# hurt KIND NODE: the fault, from beginning to end. If the node that leads is lost, another takes its place.
hurt() {
  case $1 in
  rank-killed) kill -KILL "$(rank_of "$2")" ;;
  rank-crashes) kill -SEGV "$(rank_of "$2")" ;;
  rank-stands-still) kill -STOP "$(rank_of "$2")" ;;
  agent-killed) kill -KILL "$(inner_of "n$2")" ;;
  power-off) power_off "n$2" ;;
  brief-cut) cut_for 0.5 "$2" ;;
  cut) cut_for $((lease - 1)).5 "$2" ;;
  long-cut) cut_for $((2 * lease)) "$2" ;;
  reset) reset_link $port ;;
  waits) stand_still 2 "n$2" ;;
  stands-still) stand_still $((2 * lease)) "n$2" ;;
  esac
} 2> /dev/null

# blow: one to three faults at a time, to different nodes
blow() {
  local i kind node hit=" "
  draw 3
  for ((i = drawn; i >= 0 && n_faults < faults; i--)); do
    draw ${#kinds[@]}; kind=${kinds[drawn]}
    draw "$n"; node=$drawn
    [[ $hit != *" $node "* ]] || continue
    hit+="$node "
    n_faults=$((n_faults + 1))
    echo "$kind" >> kinds
    hurt "$kind" "$node" &
    hurting+=($!)
  done
  what=$hit
}

echo "# seed $seed, $n agents, $faults faults, lease $lease s"
for ((i = 0; i < n; i++)); do start "$i"; done
until=0
wait_until 60 goes_on || { not_ok "the world forms" "$(tail -n 5 n?.out)"; exit 1; }
n_faults=0 continued=0 blows=0
: > pauses
: > kinds
while [ "$n_faults" -lt "$faults" ]; do
  hurting=()
  blow
  [ ${#hurting[@]} -gt 0 ] || continue
  blows=$((blows + 1))
  wait "${hurting[@]}"
  until=$(seconds)
  if wait_until 15 goes_on; then
    continued=$((continued + 1))
  else
    not_ok "the job goes on after blow $blows ($(tail -n ${#hurting[@]} kinds | xargs) on$what)" "$(tail -n 4 n*.out)"
    break
  fi
  number time < "$RUN/metrics.jsonl" | awk -v until="$until" '$1 > until { print $1 - until; exit }' >> pauses
done
check_eq "$n agents, $faults faults: the job goes on after every blow" "$blows of $blows" "$continued of $blows"
figures "$RUN" > disturbed
last=$(tail -n 1 disturbed | cut -d ' ' -f 1)
generations=$(($(tail -n 1 "$RUN/metrics.jsonl" | number generation) + 1))
kill_agents 2> /dev/null
netns_down
wait

# The same steps on one node, which nothing disturbs
reached() { [ "$(tail -n 1 "$WORK/calm/tiny/metrics.jsonl" | number step)" -ge "$last" ]; } 2> /dev/null
begin calm timeout -k 5 3600 bin/fsdprun "${job[@]}" --set run.dir="$WORK/calm" --nproc-per-node "$n" --set checkpoint.every=0
wait_until 300 reached || not_ok "the undisturbed run reaches step $last" "$(tail -n 5 calm.out)"
signal calm TERM
ended calm
figures "$WORK/calm/tiny" | head -n "$last" > undisturbed
check_eq "every step was made" "$last" "$(cut -d ' ' -f 1 disturbed | uniq | wc -l)"
check "each step of $last, in $generations generations, has the undisturbed run's loss and norm, bit for bit" \
  diff disturbed undisturbed
sort kinds | uniq -c | awk '{ printf "# %4d %s\n", $1, $2 }'
sort -n pauses | awk '{ v[NR] = $1 } END { printf "# %d steps, %d blows; from the end of a blow to the next step: p50 %.2f s, longest %.2f s\n", '"$last"', NR, v[int((NR + 1) / 2)], v[NR] }'
