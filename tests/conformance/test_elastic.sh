# Several agents on loopback, one endpoint: who is in the world, with which ranks, and what happens when nodes come and
# go. Mirrors, for PyTorch's suite (tests/conformance/README.md): test/distributed/elastic/agent/server/test/
# local_elastic_agent_test.py, elastic/rendezvous/dynamic_rendezvous_test.py (its integration cases) and
# launcher/test_run.py (elastic launches). Every agent says that it lives at an address of its own (127.0.0.x).
. tests/support/harness.sh
RUN=$BIN/fsdprun
ln -s "$TOY/toy" "$WORK/toy"
TOYW=$WORK/toy # by this name its processes are known
port=$(port_block)
cd "$WORK" || exit 1
at_exit() { kill -9 $(cat "$WORK"/*.pid 2> /dev/null) 2> /dev/null; }

# start NAME N OPTIONS...: an agent at 127.0.0.N in the background; output in NAME.out, pid in NAME.pid, status in NAME.rc
start() {
  local name=$1 at=$2; shift 2
  rm -f "$name.rc"
  { timeout -k 5 1200 "$RUN" --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" --local-addr "127.0.0.$at" --insecure "$@" \
      > "$name.out" 2>&1 < /dev/null &
    echo $! > "$name.pid.tmp"; mv "$name.pid.tmp" "$name.pid"
    wait $!; echo $? > "$name.rc.tmp"; mv "$name.rc.tmp" "$name.rc"; } 2> /dev/null &
  wait_until 10 test -e "$name.pid"
}
ended() { local n; for n in "$@"; do wait_until 90 test -e "$n.rc"; done; }
rcs() { local n out=; for n in "$@"; do out="$out $(cat "$n.rc" 2> /dev/null || echo none)"; done; echo "${out# }"; }
show() { local n; for n in "$@"; do echo "--- $n ($(rcs "$n"))"; tail -n 15 "$n.out"; done >&2; }
# The fsdprun below timeout(1): what a user's kill reaches.
agent_of() { pgrep -P "$(cat "$1.pid")" -x fsdprun | head -n 1; }
signal() { kill "-$2" "$(agent_of "$1")"; }
lines() { [ "$(wc -l < "$1" 2> /dev/null || echo 0)" -ge "$2" ]; }
has() { grep -q -- "$2" "$1.out"; }
next() { port=$((port + 1)); }
# check_ends NAME WANT AGENTS...
check_ends() { local name=$1 want=$2; shift 2; ended "$@"; check_eq "$name" "$want" "$(rcs "$@")"; [ "$want" = "$(rcs "$@")" ] || show "$@"; }
values() { cat "${@:2}" | sed -n "s/^$1=//p" | sort -n | tr '\n' ' ' | sed 's/ $//'; }

# test_run_distributed_sum_homogeneous: 2 x 4.
for i in 1 2; do start "a$i" "$i" --nnodes 2 --nproc-per-node 4 -- "$TOYW" env=RANK env=WORLD_SIZE env=GROUP_WORLD_SIZE; done
check_ends "2 x 4: both end with 0" "0 0" a1 a2
check_eq "2 x 4: eight ranks" "0 1 2 3 4 5 6 7" "$(values RANK a1.out a2.out)"
check_eq "2 x 4: of eight, on two nodes" "8 2" "$(values WORLD_SIZE a1.out a2.out | tr ' ' '\n' | sort -u) $(values GROUP_WORLD_SIZE a1.out a2.out | tr ' ' '\n' | sort -u)"
check_eq "one of them says that it hosts" 1 "$(cat a1.out a2.out | grep -c 'this node hosts')"
check_eq "and the other who does" 1 "$(cat a1.out a2.out | grep -c 'hosts, at 127.0.0.1:[0-9]*; waiting for the world')"

# test_run_distributed_sum_heterogeneous: 1 + 2 + 3 workers; ranks asked for by number.
next
for i in 1 2 3; do start "b$i" "$i" --nnodes 3 --node-rank $((i - 1)) --nproc-per-node "$i" -- "$TOYW" env=RANK env=GROUP_RANK env=LOCAL_WORLD_SIZE env=WORLD_SIZE; done
check_ends "1 + 2 + 3 workers: all end with 0" "0 0 0" b1 b2 b3
check_eq "ranks follow the nodes" "0 / 1 2 / 3 4 5" "$(values RANK b1.out) / $(values RANK b2.out) / $(values RANK b3.out)"
check_eq "group ranks as asked for" "0 / 1 1 / 2 2 2" "$(values GROUP_RANK b1.out) / $(values GROUP_RANK b2.out) / $(values GROUP_RANK b3.out)"
check_eq "each knows its own number of workers" "3 3 3" "$(values LOCAL_WORLD_SIZE b3.out)"

# test_correct_rank_assignment_heterogeneous: seven agents in three roles.
next
roles=(x master trainer trainer ps ps reader trainer) workers=(x 1 2 3 2 1 2 1)
for i in 1 2 3 4 5 6 7; do start "c$i" "$i" --nnodes 7 --node-rank $((i - 1)) --role "${roles[i]}" --nproc-per-node "${workers[i]}" -- "$TOYW" env=RANK env=ROLE_RANK env=ROLE_WORLD_SIZE env=ROLE_NAME; done
check_ends "seven agents in three roles and a master: all end with 0" "0 0 0 0 0 0 0" c1 c2 c3 c4 c5 c6 c7
check_eq "twelve ranks" "0 1 2 3 4 5 6 7 8 9 10 11" "$(values RANK c?.out)"
check_eq "trainers are counted among trainers" "0 1 / 2 3 4 / 5" "$(values ROLE_RANK c2.out) / $(values ROLE_RANK c3.out) / $(values ROLE_RANK c7.out)"
check_eq "and know how many they are" "6 6 6 6 6 6" "$(values ROLE_WORLD_SIZE c2.out c3.out c7.out)"
check_eq "so do the others" "0 1 2 / 0 1 / 0" "$(values ROLE_RANK c4.out c5.out) / $(values ROLE_RANK c6.out) / $(values ROLE_RANK c1.out)"

# The number that a scheduler gives orders the nodes, whoever hosts and whoever comes first.
next
for i in 3 1 2; do SLURM_PROCID=$((i - 1)) start "d$i" "$i" --nnodes 3 -- "$TOYW" env=GROUP_RANK; done
check_ends "three tasks of a scheduler" "0 0 0" d1 d2 d3
check_eq "are ranked by its numbers" "0 1 2" "$(values GROUP_RANK d1.out) $(values GROUP_RANK d2.out) $(values GROUP_RANK d3.out)"

# test_launch_elastic: one agent of 1:2 runs alone after the last call; test_launch_elastic_multiple_agents: two of 1:2 are one world.
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
check_match "it was told to wait for that" "formed anew with this node" "$(cat g2.out)"
touch g.go
check_ends "and both end with 0" "0 0" g1 g2
check_eq "the world grew from one to two" "1 2 2" "$(values WORLD_SIZE g1.out g2.out)"
check_eq "without a restart" "0 0 0" "$(values TORCHELASTIC_RESTART_COUNT g1.out g2.out)"

# test_double_agent_elastic: one of two agents is killed, without replacement: the other goes on alone and ends with 0.
next
start h1 1 --nnodes 1:2 -- "$TOYW" env=WORLD_SIZE touch=h.started wait=h.go
wait_until 10 has h1 "this node hosts"
start h2 2 --nnodes 1:2 -- "$TOYW" touch=h.started daemon wait=h.go
wait_until 30 lines h.started 2
began=$(date +%s%N)
signal h2 KILL
check "an agent of 1:2 is killed: the other goes on" wait_until 30 lines h.started 3
took=$((($(date +%s%N) - began) / 1000000))
check "within 5 s ($took ms)" in_good_time 5000 "$took"
touch h.go
check_ends "and ends with 0, the killed one by KILL" "0 137" h1 h2
check_eq "the world shrank from two to one" "1 2" "$(values WORLD_SIZE h1.out)"
check_match "it says which node was lost" "node 1 at 127.0.0.2.*starting again, with 1 node" "$(cat h1.out)"

# test_double_agent_fault_tolerance: one of two is killed and started again: both end with 0, ranks as before.
next
start i1 1 --nnodes 2 --max-restarts 2 -- "$TOYW" env=RANK env=TORCHELASTIC_RESTART_COUNT touch=i.started wait=i.go
wait_until 10 has i1 "this node hosts"
start i2 2 --nnodes 2 --max-restarts 2 -- "$TOYW" touch=i.started wait=i.go
wait_until 30 lines i.started 2
signal i2 KILL
check "two agents are needed: the one that is left waits" wait_until 30 has i1 "once there are 2 nodes"
start i3 2 --nnodes 2 --max-restarts 2 -- "$TOYW" env=RANK env=TORCHELASTIC_RESTART_COUNT touch=i.started wait=i.go
check "its node comes back, and the world forms again" wait_until 30 lines i.started 4
touch i.go
check_ends "both end with 0" "0 0" i1 i3
check_eq "ranks as before" "0 0 / 1" "$(values RANK i1.out) / $(values RANK i3.out)"
check_eq "the lost node cost one restart, on both the same" "0 1 / 1" "$(values TORCHELASTIC_RESTART_COUNT i1.out) / $(values TORCHELASTIC_RESTART_COUNT i3.out)"

# test_redundancy_transition_to_wait_list_then_join_rendezvous, and its kin: a spare replaces a crashed node.
next
start j1 1 --nnodes 2 --max-restarts 1 -- "$TOYW" touch=j.started wait=j.go
wait_until 10 has j1 "this node hosts"
start j2 2 --nnodes 2 --max-restarts 1 -- "$TOYW" touch=j.started wait=j.go
wait_until 30 lines j.started 2
start j3 3 --nnodes 2 --max-restarts 1 -- "$TOYW" env=RANK touch=j.started wait=j.go
check "a third agent of two is told that it is a spare" wait_until 30 has j3 "as a spare"
check "and disturbs nobody" lines j.started 2
began=$(date +%s%N)
signal j2 KILL
check "the spare takes the place of a node that is killed" wait_until 30 lines j.started 4
took=$((($(date +%s%N) - began) / 1000000))
check "within 5 s ($took ms)" in_good_time 5000 "$took"
touch j.go
check_ends "and both end with 0" "0 0" j1 j3
check_eq "it has the rank of the one it replaced" 1 "$(values RANK j3.out)"

# A spare that was never needed ends with the others.
next
start k2 1 --nnodes 2 -- "$TOYW" touch=k.started wait=k.go
start k3 2 --nnodes 2 -- "$TOYW" touch=k.started wait=k.go
wait_until 30 lines k.started 2
start k4 3 --nnodes 2 -- "$TOYW" touch=k.started wait=k.go
wait_until 30 has k4 "as a spare"
touch k.go
check_ends "a spare that was not needed ends with 0 too" "0 0 0" k2 k3 k4

# Too few are left: 76, and who is there.
next
start l1 1 --nnodes 2:3 --rdzv-conf last_call_timeout=1,join_timeout=$((3 * $(pace))) -- "$TOYW" touch=l.started wait=l.go
wait_until 10 has l1 "this node hosts"
start l2 2 --nnodes 2:3 --rdzv-conf last_call_timeout=1 -- "$TOYW" touch=l.started wait=l.go
wait_until 30 lines l.started 2
signal l2 KILL
check_ends "fewer than MIN are left, and nobody comes: 76" "76" l1
check_match "with who is left" "1 of 2 nodes are left; here is .*127.0.0.1" "$(tail -n 1 l1.out)"

# The coordinator's node is killed: the others end with 76, at once.
next
start m1 1 --nnodes 1:2 -- "$TOYW" touch=m.started wait=m.go
wait_until 10 has m1 "this node hosts"
start m2 2 --nnodes 1:2 -- "$TOYW" touch=m.started daemon wait=m.go
wait_until 30 lines m.started 2
signal m1 KILL
check_ends "the coordinator's node is killed: the other ends with 76" "76" m2
check_match "and says so" "link to the coordinator.*was lost" "$(tail -n 1 m2.out)"
check "nothing is left of it" wait_until 10 none_alive "$TOYW touch=m.started"

# A signal is a goodbye: the others go on where enough are left; on the coordinator's node it stops all.
next
start n1 1 --nnodes 1:2 -- "$TOYW" touch=n.started wait=n.go
wait_until 10 has n1 "this node hosts"
start n2 2 --nnodes 1:2 -- "$TOYW" touch=n.started wait=n.go
wait_until 30 lines n.started 2
signal n2 TERM
check "a node that says goodbye leaves, and the other goes on" wait_until 30 lines n.started 3
check_ends "it ends by its signal" "143" n2
check_match "and is told that the others go on" "SIGTERM; the others go on" "$(tail -n 1 n2.out)"
signal n1 TERM
check_ends "the same on the coordinator's node ends the job" "143" n1
next
start o1 1 --nnodes 1:2 -- "$TOYW" touch=o.started wait=o.go
wait_until 10 has o1 "this node hosts"
start o2 2 --nnodes 1:2 -- "$TOYW" touch=o.started wait=o.go
wait_until 30 lines o.started 2
signal o1 INT
check_ends "an interrupt of the coordinator's node stops every node" "130 130" o1 o2

# test_barrier / drift: nodes need not end together; one that vanishes when its ranks have ended is not missed.
next
start p1 1 --nnodes 2 -- "$TOYW" touch=p.started wait=p.go
wait_until 10 has p1 "this node hosts"
start p2 2 --nnodes 2 -- "$TOYW" touch=p.started
wait_until 30 lines p.started 2
wait_until 30 sh -c "! kill -0 $(awk '$1 == 1 {print $2}' p.started)"
check_eq "a node that has finished waits for the other" "none none" "$(rcs p1 p2)"
touch p.go
check_ends "and both end with 0" "0 0" p1 p2
next
start v1 1 --nnodes 2 -- "$TOYW" touch=v.started wait=v.go
wait_until 10 has v1 "this node hosts"
start v2 2 --nnodes 2 -- "$TOYW" touch=v.started
wait_until 30 lines v.started 2
wait_until 30 sh -c "! kill -0 $(awk '$1 == 1 {print $2}' v.started)"
signal v2 KILL
ended v2
touch v.go
check_ends "one that vanishes when its ranks have ended is not missed" "0" v1

# Failures are counted for the whole job: two restarts, whoever fails, and the same count on every node.
next
start q1 1 --nnodes 2 --max-restarts 2 -- "$TOYW" env=TORCHELASTIC_RESTART_COUNT touch=q.1 lines=2:q.0 rank=0 before=1 exit=7 before=2 wait=q.never
wait_until 10 has q1 "this node hosts" # and has rank 0
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
wait_until 30 sh -c "! kill -0 $(awk '$1 == 0 {print $2}' w.started)"
start w2 2 --nnodes 1:2 -- "$TOYW" touch=w.started
check "one that comes when the first rank has ended is told that the world is ending" wait_until 30 has w2 "the world is ending"
touch w.go
check_ends "and ends with 0 when the job is complete" "0 0" w1 w2
check_match "which it says" "the job is complete: this node came too late" "$(tail -n 1 w2.out)"
next
start x1 1 --nnodes 1:2 --nproc-per-node 2 --rdzv-conf last_call_timeout=1 -- "$TOYW" ignore=15 touch=x.started rank=0 lines=2:x.started rank=0 exit=7 wait=x.go
wait_until 30 lines x.started 2
wait_until 30 sh -c "! kill -0 $(awk '$1 == 0 {print $2}' x.started)"
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
  { timeout -k 5 1200 "$RUN" --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" --insecure --nnodes 1:2 --rdzv-conf last_call_timeout=1 \
      -- "$TOYW" touch=$y.started wait=$y.go flood=50000 exit=$status > $y.fifo 2>&1 8<&- < /dev/null; echo $? > ${y}h.rc; } &
  wait_until 30 lines $y.started 1
  dd if=/dev/zero of=$y.fifo oflag=nonblock bs=4096 2> /dev/null
  touch $y.go
  wait_until 30 sh -c "! kill -0 $(awk '{print $2}' $y.started)"
  start ${y}n 2 --nnodes 1:2 --rdzv-conf join_timeout=30 -- "$TOYW"
  check_ends "one that comes when only output is left, after status $status" "$((status == 0 ? 0 : 75))" ${y}n
  check_match "is told so" "$([ $status = 0 ] && echo 'the job is complete' || echo 'refused: the job ended with status 7')" "$(tail -n 1 ${y}n.out)"
  check "while the host is still there" test ! -e ${y}h.rc
  timeout 600 cat < $y.fifo > /dev/null 8<&- &
  exec 8<&-
  check_ends "which ends with its own" "$status" ${y}h 2> /dev/null
done

# Contradictions, in one line that names both.
next
start s1 1 --nnodes 3 --node-rank 1 -- "$TOYW"
wait_until 10 has s1 "this node hosts"
start s2 2 --nnodes 3 --node-rank 1 -- "$TOYW"
check_ends "two nodes of one rank: the second is refused" "78" s2
check_match "with both named" "node rank 1 is taken by .*\(127.0.0.1\).*127.0.0.*asks for it too" "$(tail -n 1 s2.out)"
start s3 2 --nnodes 2 --node-rank 0 -- "$TOYW"
check_ends "another number of nodes is refused" "78" s3
check_match "with both numbers" "for 2:2 nodes.*for 3:3" "$(tail -n 1 s3.out)"
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
    { timeout 600 "$RUN" --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "[::1]:$port" --insecure -- "$TOYW" env=MASTER_ADDR > "u$i.out" 2>&1; echo $? > "u$i.rc"; } &
  done
  check_ends "two agents meet at [::1]" "0 0" u1 u2
  check_eq "which is the master's address" "::1 ::1" "$(values MASTER_ADDR u1.out u2.out)"
else
  skip "two agents meet at [::1]" "no IPv6 on loopback"
fi
exit $((n_failed > 0))
