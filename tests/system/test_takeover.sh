# Jobs of several nodes whose leader is lost: another node takes its place, and the job goes on from its newest
# checkpoint, without a command. The nodes are agents on addresses of loopback.
# Long
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; netns_down; }
port=$(port_block)
cd "$WORK" || exit 1
new_secret secret
tiny_job job.yaml
# Ten steps a second, so that no job is over before its test disturbs it.
mkdir bin && cp "$BIN/fsdprun" bin/ && cp "$TOY/fsdp_train_mutant" bin/fsdp-train
export FSDP_TEST_SLOW=data:0:100

# node NAME I NNODES OPTIONS...: the agent NAME-I of a job; 1 has the endpoint and leads first. Ranks that share their
# CPUs unknowingly have a thread each: with more, one waits for what the other holds.
node() {
  local name=$1 i=$2 nnodes=$3
  shift 3
  begin "$name-$i" timeout -k 5 1200 "$WORK/bin/fsdprun" --nnodes "$nnodes" --rdzv-backend c10d \
    --rdzv-endpoint "127.0.0.1:$port" --local-addr "127.0.0.$i" --secret-file secret job.yaml \
    --nproc-per-node 1 --set launch.threads=1 --set run.name="$name" "$@"
  [ "$i" != 1 ] || wait_until 30 has "$name-1" "this node hosts"
}
# start NAME N NNODES OPTIONS...: N agents of one job
start() {
  local name=$1 n=$2 i
  shift 2
  port=$((port + 1))
  for i in $(seq "$n"); do node "$name" "$i" "$@"; done
}
events() { grep -c "\"event\": *\"$2\"" "runs/$1/events.jsonl"; }
generation() { grep -q "\"event\": *\"spawn\".*\"generation\": *$2[,}]\|\"generation\": *$2[,}].*\"event\": *\"spawn\"" "runs/$1/events.jsonl" 2> /dev/null; }
ms() { echo $(($(date +%s%N) / 1000000)); }
# took_over NAME WHO...: did exactly one of them say that it leads?
took_over() {
  local name=$1 n=0 i
  shift
  for i in "$@"; do has "$name-$i" "this node leads the job from now on" && n=$((n + 1)); done
  [ "$n" = 1 ]
}
# What both worlds compute, undisturbed.
for n in 2 3; do
  run_job "calm$n.out" --nproc-per-node "$n" job.yaml --set run.name="calm$n" --set train.steps=40
  check_eq "a calm run of $n ranks ends with 0" 0 $?
done

# The leader's guard and agent are killed, which a host without power looks like. A node of three is lost.
start three 3 2:3 --set train.steps=40 --rdzv-conf lease=9
wait_until 120 has_logged runs/three 0 8
check "each generation says which losses the job survives" \
  wait_until 30 has three-1 "generation 0: the job bears the loss of 1 of its 3 nodes, also of .*, which leads"
# A rank that stands still holds what it has not published yet, as this shell does here.
unpublished=runs/three/checkpoints/.step-00000099.t1.g0.12345678
mkdir "$unpublished"
exec 7< "$unpublished"
flock -s 7
began=$(ms)
power_off three-1
check "the leader of three nodes is lost: a new generation begins" wait_until 60 generation three 1
took=$(($(ms) - began))
check "... within 2.5 leases ($took ms)" in_good_time 22500 "$took"
check "... and nothing that the old leader could publish is left" test ! -e "$unpublished"
exec 7<&-
check "... which one of the others leads" took_over three 2 3
check_ends "... and both end with 0" "0 0" three-2 three-3
check_match "it went on from a checkpoint" "resuming after step" "$(cat three-2.out three-3.out)"
check_eq "lines of metrics and events have their leader's term" "1 2 1 2" \
  "$(for file in metrics events; do sed -n 's/.*"term": *\([0-9]*\).*/\1/p' "runs/three/$file.jsonl" | uniq; done | xargs)"
check "the figures are those of a calm run" close_figures runs/calm2 runs/three 1 1e-4
timeline=$(grep '"event": *"timeline"' runs/three/events.jsonl)
check_match "... and its timeline is that of a lost node" '"generation": *1,.*"reason": *"node",.*"lost_steps": *[0-9]' "$timeline"
moments=$(for key in detected stopped fenced formed spawned resumed first_step; do number "${key}_ms" <<< "$timeline"; done)
check_eq "... with its seven moments in order" "7 $(sort -n <<< "$moments" | xargs)" "$(wc -l <<< "$moments") $(xargs <<< "$moments")"
check "... and the fence took some of the leases" awk 'NR == 3 { fenced = $1 } END { exit !(fenced > 9000 && $1 < 45000) }' <<< "$moments"
check_match "... and so does a line" "training again after [0-9.]+ s \\([0-9.]+ detected, [0-9.]+ stopped, [0-9.]+ fenced, " "$(cat three-2.out three-3.out)"
check_eq "the loss of a node that may be missing costs no restart" 0 "$(events three restart)"

# A spare takes the place of the lost node: the same world again, so to the bit the same figures.
start spare 3 2 --set train.steps=40 --rdzv-conf lease=1
wait_until 120 has_logged runs/spare 0 8
power_off spare-1
check_ends "the leader of two nodes is lost, and a spare is there: both end with 0" "0 0" spare-2 spare-3
check_eq "... to the bit with the figures of a calm run" "$(figures runs/calm2)" "$(figures runs/spare)"
check_eq "... and its weights" "$(payloads runs/calm2/checkpoints/step-00000040)" "$(payloads runs/spare/checkpoints/step-00000040)"

# The leader's host stands still, with all its processes, for longer than all others wait.
tree() { # NAME: its guard, its agent and its ranks
  local guard inner
  guard=$(agent_of "$1") inner=$(inner_of "$1")
  echo "$guard $inner $(pgrep -P "$inner" | xargs)"
}
start still 2 1:2 --set train.steps=60 --rdzv-conf lease=1
wait_until 120 has_logged runs/still 0 8
pids=$(tree still-1) rank=${pids##* }
kill -STOP $pids
check "the leader stands still: the other node goes on alone" wait_until 60 generation still 1
check "... and trains" wait_until 60 has_logged runs/still 1 3
lines=$(logged_lines runs/still 0)
kill -CONT $pids 2> /dev/null # the guard, which is the first, may kill the rank before its turn comes
check "the one that stood still says that it leads no more" wait_until 30 has still-1 "this node led the job, and may not lead it any more: .*; it ends its ranks and joins again"
check_ends "... and both end with 0" "0 0" still-1 still-2
check_eq "... its world took no further step" "$lines" "$(logged_lines runs/still 0)"
check_eq "... and its rank is dead" "" "$(ps -o pid= -p "$rank")"
check "... and it wrote no report of errors" test ! -e runs/still/errors.json

# A program, whose directory the user names. The lost host is started again.
# program NAME DIR N: node N; each rank adds a line to DIR.started, and ends once DIR.go is there
program() {
  begin "$1" timeout -k 5 1200 "$BIN/fsdprun" --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" \
    --local-addr "127.0.0.$3" --secret-file secret --run-dir "$WORK/$2" --rdzv-conf lease=1 \
    -- "$TOY/toy" env=MASTER_ADDR env=FSDPRUN_TERM touch="$2.started" wait="$2.go"
}
programs() { # DIR: two nodes of it, DIR-1 and DIR-2
  port=$((port + 1))
  program "$1-1" "$1" 1
  wait_until 30 has "$1-1" "this node hosts"
  program "$1-2" "$1" 2
  wait_until 30 lines "$1.started" 2
}
programs program
power_off program-1
check "the leader of a program is lost: the other node goes on" wait_until 60 lines program.started 3
program back program 1
check "... and the lost host, started again, joins it" wait_until 60 lines program.started 5
power_off back
check "it is lost once more: the other node goes on" wait_until 60 lines program.started 6
program again program 1
check "... and waits when it comes again, because its loss as the leader counts too" \
  wait_until 60 has again "this node was lost more than once: it takes part again after 10 s"
touch program.go
check_ends "... and both end with 0" "0 0" program-2 again
check_eq "FSDPRUN_TERM is the new leader's, and MASTER_ADDR the host's that has the first seat again" "127.0.0.1 2" \
  "$(sed -n 's/^MASTER_ADDR=//p' back.out) $(sed -n 's/^FSDPRUN_TERM=//p' back.out)"
check_eq "... and each attempt has a folder" "attempt_0 attempt_1 attempt_2 attempt_3" "$(cd program && echo attempt_*)"

# The store at which the ranks of a program meet is where the first seat is, and another node leads.
cat > meets << EOF
#!/bin/sh
"$TOY/store_client" connect && exec "$TOY/toy" env=MASTER_ADDR env=FSDPRUN_TERM touch=seats.started wait=seats.go
EOF
chmod +x meets
seat() { # N NODE_RANK
  begin "seats-$1" timeout -k 5 1200 "$BIN/fsdprun" --nnodes 2:3 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" \
    --local-addr "127.0.0.$1" --node-rank "$2" --secret-file secret --run-dir "$WORK/seats" --rdzv-conf lease=1 -- "$WORK/meets"
}
port=$((port + 1))
seat 1 1
wait_until 30 has seats-1 "this node hosts"
seat 2 0
seat 3 2
check "the ranks of three nodes meet at a store" wait_until 60 lines seats.started 3
power_off seats-1
check "their leader is lost, and the ranks of the other two meet again" wait_until 60 lines seats.started 5
touch seats.go
check_ends "... and both nodes end with 0" "0 0" seats-2 seats-3
check_eq "the store has stayed where it was" "127.0.0.2 1 127.0.0.2 2" "$(sed -nE 's/^(MASTER_ADDR|FSDPRUN_TERM)=//p' seats-3.out | xargs)"

# The same, and its agent is told to stop while it stands still: it ends then, and joins nobody.
start told 2 1:2 --set train.steps=60 --rdzv-conf lease=1
wait_until 120 has_logged runs/told 0 8
pids=$(tree told-1)
kill -STOP $pids
wait_until 60 has_logged runs/told 1 3
kill -TERM "$(inner_of told-1)"
kill -CONT $pids 2> /dev/null
check_ends "a leader that is told to stop while it stands still ends, and the other goes on" "143 0" told-1 told-2
check_match "... and says why" "fsdprun: stopped by SIGTERM$" "$(tail -n 1 told-1.out)"

# A node is told to stop, and its leader does not answer any more.
programs asks
kill -STOP "$(inner_of asks-1)"
signal asks-2 TERM
check_ends "a node that is told to stop ends, although its leader is lost before it answers" 143 asks-2
power_off asks-1

# The run ends in a cut, and the node whose rank has ended hears nothing of that.
in_cut() { # NAME N: a node on the host N
  local name=$1 n=$2
  begin "$name" on_node "$n" timeout -k 5 1200 "$BIN/fsdprun" --rdzv-backend c10d --rdzv-endpoint "10.77.77.1:$port" \
    --nnodes 1:2 --secret-file secret --run-dir "$WORK/deaf" --rdzv-conf lease=6 -- "$TOY/toy" rank=0 wait=deaf.go
}
changed() { ! cmp -s seen deaf/leader/record; }
if netns_up; then
  in_cut deaf-1 0
  wait_until 30 has deaf-1 "this node hosts"
  in_cut deaf-2 1
  check "the rank of a member ends" wait_until 60 grep -q '"event": "exit".*"rank": 1' deaf/events.jsonl
  for _ in 1 2; do cp deaf/leader/record seen; wait_until 30 changed; done # its node has said that all of its ranks have
  cut_link
  touch deaf.go
  check_ends "its run ends while the link is silent: both nodes end with the status of the run" "0 0" deaf-1 deaf-2
else
  skip "a run that ends in a cut" "needs root, ip and nft for network namespaces"
fi

# As it was: the loss of the host ends the job.
start none 2 1:2 --set train.steps=4000 --rdzv-conf lease=1 --arbiter none
wait_until 120 has_logged runs/none 0 2
check_match "without an arbiter the loss of the leader is another matter" "generation 0: .* but not of .*, which leads" "$(cat none-1.out)"
power_off none-1
check_ends "without an arbiter the other node ends with 76" "76" none-2
check "... and no record is kept" test ! -e runs/none/leader

# A node that has not read the record of its leader could not take its place, and ends with it.
start blind 1 1:2 --set train.steps=4000 --rdzv-conf lease=1
node blind 2 1:2 --set train.steps=4000 --rdzv-conf lease=1 --arbiter none
check "a node that does not see the record is not counted on" \
  wait_until 60 has blind-1 "the job bears the loss of 1 of its 2 nodes, but not of .*, which leads"
power_off blind-1
check_ends "... and ends with its leader" "76" blind-2
