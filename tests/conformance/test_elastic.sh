# Several agents on loopback, one endpoint: who is in the world, with which ranks, and what happens when nodes
# come and go. Mirrors, for PyTorch's suite (tests/conformance/README.md):
# test/distributed/elastic/agent/server/test/ local_elastic_agent_test.py,
# elastic/rendezvous/dynamic_rendezvous_test.py (its integration cases) and launcher/test_run.py (elastic
# launches). Every agent says that it lives at an address of its own (127.0.0.x).
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
toy_agents
at_exit() { kill_agents; }

# start NAME N OPTIONS...: an agent at 127.0.0.N in the background
start() {
  local name=$1 at=$2
  shift 2
  begin "$name" timeout -k 5 1200 "$RUN" --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" \
    --local-addr "127.0.0.$at" --insecure "$@"
}
next() { port=$((port + 1)); }
# hosts NAME OPTIONS...: the agent NAME1 of a new endpoint, as soon as it hosts
hosts() {
  next
  start "${1}1" 1 "${@:2}"
  wait_until 10 has "${1}1" "this node hosts"
}
# joins NAME OPTIONS...: the agent NAME2, as soon as a worker of each has written to NAME.started
joins() {
  start "${1}2" 2 "${@:2}"
  wait_until 30 lines "$1.started" 2
}
# world NAME OPTIONS...: two agents with these options. Their workers write to NAME.started and wait for
# NAME.go.
world() {
  hosts "$@" -- "$TOYW" touch="$1.started" daemon wait="$1.go"
  joins "$@" -- "$TOYW" touch="$1.started" daemon wait="$1.go"
}
# gone FILE RANK: has the worker of this rank, which wrote its pid to the file, ended?
gone() { ! kill -0 "$(awk -v rank="$2" '$1 == rank { print $2 }' "$1")"; }
# within_5_s NAME N TITLE: NAME.started gets N lines, within 5 s of $began
within_5_s() {
  local took
  check "$3" wait_until 30 lines "$1.started" "$2"
  took=$((($(date +%s%N) - began) / 1000000))
  check "within 5 s ($took ms)" in_good_time 5000 "$took"
}

# test_run_distributed_sum_homogeneous: 2 x 4.
for i in 1 2; do start "a$i" "$i" --nnodes 2 --nproc-per-node 4 -- "$TOYW" env=RANK env=WORLD_SIZE env=GROUP_WORLD_SIZE; done
check_ends "2 x 4: both end with 0" "0 0" a1 a2
check_eq "2 x 4: eight ranks" "0 1 2 3 4 5 6 7" "$(values RANK a1.out a2.out)"
check_eq "2 x 4: of eight, on two nodes" "8 2" "$(values WORLD_SIZE a1.out a2.out | tr ' ' '\n' | sort -u) $(values GROUP_WORLD_SIZE a1.out a2.out | tr ' ' '\n' | sort -u)"
check_eq "one of them says that it hosts" 1 "$(cat a1.out a2.out | grep -c 'this node hosts')"
check_eq "and the other who does" 1 "$(cat a1.out a2.out | grep -c 'hosts, at 127.0.0.1:[0-9]*; waiting for the world')"

# test_run_distributed_sum_heterogeneous, test_correct_rank_assignment_heterogeneous: seven agents in three
# roles, with ranks that are asked for by number.
next
roles=(x master trainer trainer ps ps reader trainer) workers=(x 1 2 3 2 1 2 1)
for i in 1 2 3 4 5 6 7; do
  start "c$i" "$i" --nnodes 7 --node-rank $((i - 1)) --role "${roles[i]}" \
    --nproc-per-node "${workers[i]}" -- "$TOYW" env=RANK env=GROUP_RANK env=LOCAL_WORLD_SIZE env=ROLE_RANK env=ROLE_WORLD_SIZE
done
check_ends "seven agents in three roles and a master: all end with 0" "0 0 0 0 0 0 0" c1 c2 c3 c4 c5 c6 c7
check_eq "ranks follow the nodes" "0 / 1 2 / 3 4 5 / 6 7 / 8 / 9 10 / 11" \
  "$(for i in 1 2 3 4 5 6 7; do values RANK c$i.out; done | paste -sd / | sed 's,/, / ,g')"
check_eq "group ranks as asked for, and each knows its own number of workers" "2 2 2 / 3 3 3" \
  "$(values GROUP_RANK c3.out) / $(values LOCAL_WORLD_SIZE c3.out)"
check_eq "trainers are counted among trainers" "0 1 / 2 3 4 / 5" "$(values ROLE_RANK c2.out) / $(values ROLE_RANK c3.out) / $(values ROLE_RANK c7.out)"
check_eq "and know how many they are" "6 6 6 6 6 6" "$(values ROLE_WORLD_SIZE c2.out c3.out c7.out)"
check_eq "so do the others" "0 1 2 / 0 1 / 0" "$(values ROLE_RANK c4.out c5.out) / $(values ROLE_RANK c6.out) / $(values ROLE_RANK c1.out)"

# TORCH_ELASTIC_WORKER_IDENTICAL=1 says that there is one role. Its ranks are those of the world, as under
# torchrun.
next
for i in 1 2; do
  TORCH_ELASTIC_WORKER_IDENTICAL=1 start "z$i" "$i" --nnodes 2 --role "role$i" --nproc-per-node 2 -- \
    "$TOYW" env=RANK env=ROLE_RANK env=ROLE_WORLD_SIZE
done
check_ends "identical workers: both agents end with 0" "0 0" z1 z2
check_eq "identical workers: ranks in the role are those in the world" \
  "$(values RANK z1.out) / $(values RANK z2.out) / 4 4 4 4" \
  "$(values ROLE_RANK z1.out) / $(values ROLE_RANK z2.out) / $(values ROLE_WORLD_SIZE z1.out z2.out)"

# The number that a scheduler gives orders the nodes, whoever hosts and whoever comes first.
next
for i in 3 1 2; do SLURM_PROCID=$((i - 1)) start "d$i" "$i" --nnodes 3 -- "$TOYW" env=GROUP_RANK; done
check_ends "three tasks of a scheduler" "0 0 0" d1 d2 d3
check_eq "are ranked by its numbers" "0 1 2" "$(values GROUP_RANK d1.out) $(values GROUP_RANK d2.out) $(values GROUP_RANK d3.out)"

# test_launch_elastic: one agent of 1:2 runs alone after the last call; test_launch_elastic_multiple_agents:
# two of 1:2 are one world.
next
start e1 1 --nnodes 1:2 --rdzv-conf last_call_timeout=1 -- "$TOYW" env=WORLD_SIZE
check_ends "elastic 1:2 with one agent ends with 0" "0" e1
check_eq "alone" 1 "$(values WORLD_SIZE e1.out)"
next
for i in 1 2; do start "f$i" "$i" --nnodes 1:2 --nproc-per-node 4 -- "$TOYW" env=RANK env=WORLD_SIZE; done
check_ends "two agents of 1:2 on one endpoint: both end with 0" "0 0" f1 f2
check_eq "in one world of eight, formed at once" "0 1 2 3 4 5 6 7" "$(values RANK f1.out f2.out)"

# A node that comes later is taken in; no restart is counted, though none is allowed.
next
start g1 1 --nnodes 1:2 --rdzv-conf last_call_timeout=1 -- "$TOYW" env=WORLD_SIZE env=TORCHELASTIC_RESTART_COUNT touch=g.started wait=g.go
wait_until 30 lines g.started 1
start g2 2 --nnodes 1:2 -- "$TOYW" env=WORLD_SIZE env=TORCHELASTIC_RESTART_COUNT touch=g.started wait=g.go
check "a node that comes later is taken in" wait_until 30 lines g.started 3
check_match "it was told to wait for that" "will be formed with this node" "$(cat g2.out)"
touch g.go
check_ends "and both end with 0" "0 0" g1 g2
check_eq "the world grew from one to two" "1 2 2" "$(values WORLD_SIZE g1.out g2.out)"
check_eq "without a restart" "0 0 0" "$(values TORCHELASTIC_RESTART_COUNT g1.out g2.out)"

# test_double_agent_elastic: one of two agents is killed, without replacement: the other goes on alone and
# ends with 0.
hosts h --nnodes 1:2 -- "$TOYW" env=WORLD_SIZE touch=h.started wait=h.go
joins h --nnodes 1:2 -- "$TOYW" touch=h.started daemon wait=h.go
began=$(date +%s%N)
signal h2 KILL
within_5_s h 3 "an agent of 1:2 is killed: the other goes on"
touch h.go
check_ends "and ends with 0, the killed one by KILL" "0 137" h1 h2
check "and nothing is left on its node" wait_until 10 none_alive "$TOYW touch=h.started daemon"
check_eq "the world shrank from two to one" "1 2" "$(values WORLD_SIZE h1.out)"
check_match "it says which node was lost" "node 1 at 127.0.0.2.*starting again, with 1 node" "$(cat h1.out)"

# test_double_agent_fault_tolerance: one of two is killed and started again: both end with 0, ranks as before.
again=(--nnodes 2 --max-restarts 2 -- "$TOYW" env=RANK env=TORCHELASTIC_RESTART_COUNT)
again+=(touch=i.started wait=i.go)
hosts i "${again[@]}"
joins i "${again[@]}"
signal i2 KILL
check "two agents are needed: the one that is left waits" wait_until 30 has i1 "once there are 2 nodes"
start i3 2 "${again[@]}"
check "its node comes back, and the world forms again" wait_until 30 lines i.started 4
touch i.go
check_ends "both end with 0" "0 0" i1 i3
check_eq "ranks as before" "0 0 / 1" "$(values RANK i1.out) / $(values RANK i3.out)"
check_eq "the lost node cost one restart, on both the same" "0 1 / 1" "$(values TORCHELASTIC_RESTART_COUNT i1.out) / $(values TORCHELASTIC_RESTART_COUNT i3.out)"

# test_redundancy_transition_to_wait_list_then_join_rendezvous, and its kin: a spare replaces a crashed node.
world j --nnodes 2 --max-restarts 1
start j3 3 --nnodes 2 --max-restarts 1 -- "$TOYW" env=RANK touch=j.started wait=j.go
check "a third agent of two is told that it is a spare" wait_until 30 has j3 "as a spare"
check "and disturbs nobody" lines j.started 2
began=$(date +%s%N)
signal j2 KILL
within_5_s j 4 "the spare takes the place of a node that is killed"
touch j.go
check_ends "and both end with 0" "0 0" j1 j3
check_eq "it has the rank of the one it replaced" 1 "$(values RANK j3.out)"

# A spare that was never needed ends with the others.
world k --nnodes 2
start k3 3 --nnodes 2 -- "$TOYW" touch=k.started wait=k.go
wait_until 30 has k3 "as a spare"
touch k.go
check_ends "a spare that was not needed ends with 0 too" "0 0 0" k1 k2 k3

# Too few are left: 76, and who is there.
world l --nnodes 2:3 --rdzv-conf last_call_timeout=1,join_timeout=$((3 * $(pace)))
signal l2 KILL
check_ends "fewer than MIN are left, and nobody comes: 76" "76" l1
check_match "with who is left" "1 of 2 nodes are left; here is .*127.0.0.1" "$(tail -n 1 l1.out)"

# The coordinator's node is killed: the others end with 76, at once.
world m --nnodes 1:2
signal m1 KILL
check_ends "the coordinator's node is killed: the other ends with 76" "76" m2
check_match "and says so" "link to the coordinator.*was lost" "$(tail -n 1 m2.out)"
check "nothing is left of it" wait_until 10 none_alive "$TOYW touch=m.started"

# A signal is a goodbye: the others go on where enough are left; on the coordinator's node it stops all.
world n --nnodes 1:2
signal n2 TERM
check "a node that says goodbye leaves, and the other goes on" wait_until 30 lines n.started 3
check_ends "it ends by its signal" "143" n2
check_match "and is told that the others go on" "SIGTERM; the others go on" "$(tail -n 1 n2.out)"
signal n1 TERM
check_ends "the same on the coordinator's node ends the job" "143" n1
world o --nnodes 1:2
signal o1 INT
check_ends "an interrupt of the coordinator's node stops every node" "130 130" o1 o2
world O --nnodes 2
signal O2 INT
check_ends "and so does one of a node that is needed" "130 130" O1 O2

# test_barrier / drift: nodes need not end together; one that vanishes when its ranks have ended is not
# missed.
for name in p v; do
  hosts $name --nnodes 2 -- "$TOYW" touch=$name.started wait=$name.go
  joins $name --nnodes 2 -- "$TOYW" touch=$name.started
  wait_until 30 gone $name.started 1
  check_eq "a node that has finished waits for the other" "none none" "$(rcs ${name}1 ${name}2)"
  [ $name = p ] || signal v2 KILL
  [ $name = p ] || ended v2
  touch $name.go
done
check_ends "and both end with 0" "0 0" p1 p2
check_ends "one that vanishes when its ranks have ended is not missed" "0" v1

# Failures are counted for the whole job: two restarts, whoever fails, and the same count on every node.
hosts q --nnodes 2 --max-restarts 2 -- "$TOYW" env=TORCHELASTIC_RESTART_COUNT touch=q.1 lines=2:q.0 rank=0 before=1 exit=7 before=2 wait=q.never
start q2 2 --nnodes 2 --max-restarts 2 -- "$TOYW" env=TORCHELASTIC_RESTART_COUNT rank=1 touch=q.0 touch=q.0 before=1 wait=q.never lines=2:q.1 rank=1 before=2 exit=7
check_ends "each of two nodes fails once, with two restarts: both end with 0" "0 0" q1 q2
check_eq "the count is the same on both" "0 1 2 / 0 1 2" "$(values TORCHELASTIC_RESTART_COUNT q1.out) / $(values TORCHELASTIC_RESTART_COUNT q2.out)"

# A run that has ended answers nobody: who comes later has its own time to wait.
next
for i in 1 2; do start "r$i" "$i" --nnodes 2 -- "$TOYW" exit=0; done
ended r1 r2
start r3 3 --nnodes 2 --rdzv-conf is_host=0,join_timeout=2 -- "$TOYW"
check_ends "who comes after the end waits its own time: 75" "75" r3
check_match "and hears nothing of a closed run" "no answer from 127.0.0.1:$port for 2 s" "$(tail -n 1 r3.out)"

# Who comes while the job ends is told so. It has no part in how it ends: 0 when the job is complete, else 75.
next
start w1 1 --nnodes 1:2 --nproc-per-node 2 --rdzv-conf last_call_timeout=1 -- "$TOYW" touch=w.started rank=1 wait=w.go
wait_until 30 lines w.started 2
wait_until 30 gone w.started 0
start w2 2 --nnodes 1:2 -- "$TOYW" touch=w.started
check "one that comes when the first rank has ended is told that the world is ending" wait_until 30 has w2 "the world is ending"
touch w.go
check_ends "and ends with 0 when the job is complete" "0 0" w1 w2
check_match "which it says" "the job is complete: this node came too late" "$(tail -n 1 w2.out)"
next
start x1 1 --nnodes 1:2 --nproc-per-node 2 --rdzv-conf last_call_timeout=1 -- "$TOYW" ignore=15 touch=x.started rank=0 lines=2:x.started rank=0 exit=7 wait=x.go
wait_until 30 lines x.started 2
wait_until 30 gone x.started 0
start x2 2 --nnodes 1:2 -- "$TOYW" touch=x.started
check "one that comes when a rank has failed, too" wait_until 30 has x2 "the world is ending"
touch x.go
check_ends "and ends with 75, not with the failed rank's status" "7 75" x1 x2
check_match "but says it" "the job ended with status 7 before this node could take part: .*rank 0" "$(tail -n 1 x2.out)"
# The ranks have ended, and the host's last output waits for a reader: the FIFO is full before they write.
for status in 0 7; do
  next
  y=y$status
  mkfifo $y.fifo
  exec 8<> $y.fifo
  begin ${y}h sh -c 'exec "$0" "$@" > '$y.fifo' 2>&1 8<&-' timeout -k 5 1200 "$RUN" --rdzv-backend c10d \
    --insecure --rdzv-endpoint "127.0.0.1:$port" --nnodes 1:2 --rdzv-conf last_call_timeout=1 \
    -- "$TOYW" touch=$y.started wait=$y.go flood=50000 exit=$status
  wait_until 30 lines $y.started 1
  dd if=/dev/zero of=$y.fifo oflag=nonblock bs=4096 2> /dev/null
  touch $y.go
  wait_until 30 gone $y.started 0
  start ${y}n 2 --nnodes 1:2 --rdzv-conf join_timeout=30 -- "$TOYW"
  check_ends "one that comes when only output is left, after status $status" "$((status == 0 ? 0 : 75))" ${y}n
  check_match "is told so" "$([ $status = 0 ] && echo 'the job is complete' || echo 'refused: the job ended with status 7')" "$(tail -n 1 ${y}n.out)"
  check "while the host is still there" test ! -e ${y}h.rc
  timeout 600 cat < $y.fifo > /dev/null 8<&- &
  exec 8<&-
  check_ends "which ends with its own" "$status" ${y}h 2> /dev/null
done

# A node that is lost again and again disturbs the others less and less. Its first return is free.
hosts A --nnodes 1:2 --log-dir "$WORK/A.logs" -- "$TOYW" touch=A.started wait=A.go
joins A --nnodes 1:2 -- "$TOYW" touch=A.started wait=A.go
signal A2 KILL
wait_until 30 lines A.started 3
start A3 2 --nnodes 1:2 -- "$TOYW" touch=A.started wait=A.go
check "a node that was lost once is taken in when it comes back" wait_until 30 lines A.started 5
signal A3 KILL
wait_until 30 lines A.started 6
start A4 2 --nnodes 1:2 -- "$TOYW" touch=A.started wait=A.go
check "one that was lost twice is told that it has to wait" wait_until 30 has A4 "this node was lost more than once: it takes part again after 10 s"
check_match "so is the host's user" "127.0.0.2\) has been lost 2 times: it waits 10 s" "$(cat A1.out)"
check_match "and an event says so" '"event": *"quarantine".*"address": *"127.0.0.2", *"lost": *2, *"seconds": *10' "$(cat "$WORK"/A.logs/*/events.jsonl)"
touch A.go
check_ends "the job ends without it, and so does the node" "0 0" A1 A4

# Contradictions, in one line that names both.
hosts s --rdzv-id s --nnodes 3 --node-rank 1 -- "$TOYW"
start s2 2 --rdzv-id s --nnodes 3 --node-rank 1 -- "$TOYW"
check_ends "two nodes of one rank: the second is refused" "78" s2
check_match "with both named" "node rank 1 is taken by .*\(127.0.0.1\).*127.0.0.*asks for it too" "$(tail -n 1 s2.out)"
start s3 2 --rdzv-id s --nnodes 2 --node-rank 0 -- "$TOYW"
check_ends "another number of nodes is refused" "78" s3
check_match "with both numbers" "for 2:2 nodes.*for 3:3" "$(tail -n 1 s3.out)"
start s4 2 --rdzv-id s --nnodes 3 "$SOURCE/configs/quickstart.yaml"
check_ends "a job that joins a program is refused" "78" s4
signal s1 TERM
check_ends "who waits can be stopped" "143" s1

# Nobody else comes.
next
start t1 1 --nnodes 2 --rdzv-conf join_timeout=1 -- "$TOYW"
check_ends "nobody else comes: 75" "75" t1
check_match "with who is here" "1 of 2 nodes came within 1 s; here is" "$(tail -n 1 t1.out)"

# IPv6, with brackets.
if [ -e /proc/net/if_inet6 ] && grep -q '^0*1 ' /proc/net/if_inet6; then
  for i in 1 2; do
    begin "u$i" timeout 600 "$RUN" --nnodes 2 --rdzv-backend c10d --insecure \
      --rdzv-endpoint "[::1]:$port" -- "$TOYW" env=MASTER_ADDR
  done
  check_ends "two agents meet at [::1]" "0 0" u1 u2
  check_eq "which is the master's address" "::1 ::1" "$(values MASTER_ADDR u1.out u2.out)"
else
  skip "two agents meet at [::1]" "no IPv6 on loopback"
fi
