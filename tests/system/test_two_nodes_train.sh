# A job over two nodes: the losses are those of one node with as many ranks. Also a killed worker, a node that
# is cut off and joins again, a save on signal from a member, and a cut.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
at_exit() { netns_down; }
netns_up 8 || { skip "training on two nodes" "needs root, ip and nft for network namespaces"; exit 0; }
new_secret "$WORK/secret"
tiny_job "$WORK/job.yaml"
port=$(port_block)

cd "$WORK" || exit 1
# Hosts 0 and 1 are the two nodes, and so are 2 and 3, 4 and 5, 6 and 7 beside them. Two ranks that share their CPUs
# unknowingly have a thread each: with more, one waits for what the other holds.
hosts=0
both() { # NAME OPTIONS...: on both nodes of $hosts
  local name=$1 node; shift
  port=$((port + 1))
  for node in 0 1; do
    begin "$name-$node" on_node $((hosts + node)) timeout -k 5 2000 "$BIN/fsdprun" --nnodes 2 --node-rank $node \
      --rdzv-endpoint 10.77.77.$((hosts + 1)):$port --secret-file secret job.yaml --set launch.threads=1 \
      --set run.name="$name" "$@"
  done
}
# check_both TITLE WANT NAME: the statuses of NAME on both nodes, as soon as both have ended
check_both() { check_ends "$1" "$2" "$3-0" "$3-1"; }

# A firewall that lets only the rendezvous port through: the ranks cannot reach each other, and say so. They try for
# 20 s, while the next part runs.
walled() { # NAME HOSTS VERDICT...: a job behind a firewall with that verdict, on the two nodes from HOSTS on
  local name=$1; hosts=$2; shift 2
  on_node "$hosts" nft -f - << RULES
table ip wall {
  chain in { type filter hook input priority 0; iifname != "lo" tcp dport != $((port + 1)) $*; }
}
RULES
  both "$name" --max-restarts 0 --nproc-per-node 1
  hosts=0
}
check_walled() { # NAME TITLE WORDS: WORDS, a pattern, are said of the ranks
  local name=$1 node
  check_both "a firewall between the ranks that $2 ends the job with 75 on both" "75 75" "$name"
  for node in 0 1; do
    check_match "... node $node names both ranks, address and port above its last line" \
      "fsdp-train: .*($3).*fsdprun: rank [01] .*exited with status 75 in open, generation 0; 1 other" \
      "$(tail -n 3 "$WORK/$name-$node.out" | tr '\n' ' ')"
  done
}
walled wall-drop 2 drop
walled wall-reset 4 reject with tcp reset
walled wall-icmp 6 reject with icmp type admin-prohibited

# The same two ranks, on one node and on two: sums run in the order of the ranks either way.
run_job "$WORK/one.log" --nproc-per-node 2 "$WORK/job.yaml" --set run.name=one --set train.steps=40
check_eq "two ranks on one node end with 0" 0 $?
both two --nproc-per-node 1 --set train.steps=40
check_both "two nodes of one rank end with 0" "0 0" two
check_eq "to the bit the same figures" "$(figures "$WORK/runs/one")" "$(figures "$WORK/runs/two")"
last=checkpoints/step-00000040
check_eq "and the same weights" "$(payloads "$WORK/runs/one/$last")" "$(payloads "$WORK/runs/two/$last")"
check "each rank has its log" test -s "$WORK/runs/two/logs/g0/rank0/stdout.log" -a -e "$WORK/runs/two/logs/g0/rank1/stdout.log"

# Two ranks on each node: shared memory inside, TCP across. A worker of node 1 is killed on the way. Both nodes have
# the last step in memory. No save is on its way, which would keep one of the two slots.
both calm --nproc-per-node 2 --set train.steps=200
check_both "two nodes of two ranks end with 0" "0 0" calm
both hit --nproc-per-node 2 --set train.steps=200 --set checkpoint.snapshot_every=1 --set checkpoint.every=99999
RUN=$WORK/runs/hit
wait_until 120 has_logged "$RUN" 0 6 && kill -KILL "$(pid_of "$RUN" 0 3)"
check_both "with a rank of node 1 killed they end with 0 all the same" "0 0" hit
check_eq "node 0 has the event of its end" 1 \
  "$(grep '"event": *"failure"' "$RUN/events.jsonl" | grep -cE '"rank": *3')"
check_eq "after one restart" 1 "$(grep -c '"event": *"restart"' "$RUN/events.jsonl")"
check_match "from memory, with at most one step lost" '"source": *"memory".*"lost_steps": *[01],' "$(grep -E '"(resume|timeline)"' "$RUN/events.jsonl" | tr '\n' ' ')"
check_eq "every figure is the undisturbed run's" "$(figures "$WORK/runs/calm")" "$(figures "$RUN")"
last=checkpoints/step-00000200
check_eq "and the weights are" "$(payloads "$WORK/runs/calm/$last")" "$(payloads "$RUN/$last")"

# Node 1 is cut off for longer than the lease: its agent joins again, with the node rank that it had.
both back --nproc-per-node 2 --set train.steps=200 --set checkpoint.snapshot_every=1
RUN=$WORK/runs/back
wait_until 120 has_logged "$RUN" 0 6
cut_link
check "a node is cut off: the other waits for it" wait_until 30 has back-0 "once there are 2 nodes"
heal_link
check_both "when the cut is mended, both train to the end" "0 0" back
check_eq "after one restart" 1 "$(grep -c '"event": *"restart"' "$RUN/events.jsonl")"
check_match "from memory: a node that joins again still has what its ranks had" '"source": *"memory"' "$(grep '"resume"' "$RUN/events.jsonl")"
check_eq "every figure is the undisturbed run's" "$(figures "$WORK/runs/calm")" "$(figures "$RUN")"
check_eq "and the weights are" "$(payloads "$WORK/runs/calm/$last")" "$(payloads "$RUN/$last")"

# A scheduler signals node 1 alone: the job saves and stops on both, and goes on when it is run again.
both saved --nproc-per-node 1 --set train.steps=100000 --set checkpoint.every=100000 --save-on-signal
RUN=$WORK/runs/saved
wait_until 120 has_logged "$RUN" 0 4
signal saved-1 USR1
check_both "USR1 to node 1 saves and stops both with 77" "77 77" saved
check "a checkpoint is there" sh -c "ls $RUN/checkpoints/step-*/manifest.json"

# The firewalls that were there first.
unreached() { echo "rank 1 cannot connect to rank 0 at 10\.77\.77\.$1:[0-9]+"; }
refused="it is gone, of another job, or a firewall refuses connections"
check_walled wall-drop "drops" \
  "$(unreached 3) within [0-9]+ s|rank 1, at 10\.77\.77\.4:[0-9]+, did not connect to rank 0, at 10\.77\.77\.3:[0-9]+, within [0-9]+ s"
check_walled wall-reset "rejects with a reset" "$(unreached 5): Connection refused; $refused"
check_walled wall-icmp "rejects by ICMP" "$(unreached 7): No route to host; $refused"

# The link is cut while it trains, and no other node is waited for.
both cut --max-restarts 0 --nproc-per-node 1 --set train.steps=100000
wait_until 120 has_logged "$WORK/runs/cut" 0 3
cut_link
before=$(date +%s%N)
ended cut-0 cut-1
took=$((($(date +%s%N) - before) / 1000000))
heal_link
check_both "a cut link ends the job with 76 on both" "76 76" cut
check "within 10 s ($took ms)" in_good_time 10000 "$took"
for rank in 0 1; do
  check "worker $rank is not left" wait_until 5 sh -c "! kill -0 $(pid_of "$WORK/runs/cut" 0 $rank)"
done
