# Two nodes, each with its own network namespace: one world, restarts across both, a cut, a lost agent, strangers.
. tests/support/harness.sh
. tests/support/netns.sh
at_exit() { netns_down; }
netns_up || { skip "two nodes" "needs root, ip and nft for network namespaces"; exit 0; }

RUN=$BIN/fsdprun
ln -s "$TOY/toy" "$WORK/toy"
TOYW=$WORK/toy # by this name its processes are known
port=$(port_block)
cd "$WORK" || exit 1
head -c 32 /dev/urandom | base64 > secret; chmod 600 secret
head -c 32 /dev/urandom | base64 > other; chmod 600 other

# start NODE NAME OPTIONS... : fsdprun on a node in the background; output in NAME.out, exit status in NAME.rc
start() {
  local node=$1 name=$2; shift 2
  rm -f "$name.rc"
  { on_node "$node" timeout -k 5 900 "$RUN" --nnodes 2 --node-rank "$node" --rdzv-endpoint 10.77.77.1:$port "$@" \
      > "$name.out" 2>&1 < /dev/null; echo $? > "$name.rc.tmp"; mv "$name.rc.tmp" "$name.rc"; } &
}
ended() { wait_until "${2:-60}" test -e "$1.rc"; }
rc() { cat "$1.rc" 2> /dev/null || echo none; }
show() { for n in "$@"; do echo "--- $n ($(rc "$n"))"; tail -n 15 "$n.out"; done >&2; }
next_port() { port=$((port + 1)); }

# One world of 2 x 2.
start 0 a0 --secret-file secret --nproc-per-node 2 -- "$TOYW" env=RANK env=WORLD_SIZE env=GROUP_RANK env=MASTER_ADDR
start 1 a1 --secret-file secret --nproc-per-node 2 -- "$TOYW" env=RANK env=WORLD_SIZE env=GROUP_RANK env=MASTER_ADDR
ended a0; ended a1
check_eq "both nodes end with 0" "0 0" "$(rc a0) $(rc a1)"
check_eq "the ranks of one world" "RANK=0 RANK=1 RANK=2 RANK=3" "$(cat a0.out a1.out | grep '^RANK' | sort | tr '\n' ' ' | sed 's/ $//')"
check_eq "a world of four" 4 "$(cat a0.out a1.out | grep -c '^WORLD_SIZE=4')"
check_eq "node 1 knows its place" 2 "$(grep -c '^GROUP_RANK=1' a1.out)"
check_eq "the master is reached by its address" 4 "$(cat a0.out a1.out | grep -c '^MASTER_ADDR=10.77.77.1')"

# A worker that dies on node 1 restarts both nodes; ranks keep their numbers.
next_port
start 0 b0 --secret-file secret --nproc-per-node 2 --max-restarts 1 --log-dir "$WORK/b" -- "$TOYW" touch=b.started before=1 wait=b.never
start 1 b1 --secret-file secret --nproc-per-node 2 --max-restarts 1 -- "$TOYW" touch=b.started before=1 rank=3 wait=b.go rank=3 before=1 signal=9 before=1 wait=b.never
wait_until 30 sh -c '[ "$(wc -l < b.started)" = 4 ]' && touch b.go
ended b0; ended b1
check_eq "a worker killed on node 1 restarts both" "0 0" "$(rc b0) $(rc b1)" || show b0 b1
check_eq "every rank ran twice" "2 0 2 1 2 2 2 3" "$(awk '{print $1}' b.started | sort | uniq -c | awk '{print $1, $2}' | tr '\n' ' ' | sed 's/ $//')"
check_match "node 0 says who died and where" "rank 3 .*SIGKILL" "$(cat b0.out)"
check_eq "its events have the exit of the other node" 1 "$(cat b/*/events.jsonl | grep '"event": *"failure"' | grep -cE '"rank": *3')"

# Without restarts the first cause is the status of every node, and named on both.
next_port
start 0 c0 --secret-file secret -- "$TOYW" wait=c.never
start 1 c1 --secret-file secret -- "$TOYW" err=about-to-fail exit=41
ended c0; ended c1
check_eq "the root cause's code is the status of both" "41 41" "$(rc c0) $(rc c1)"
check_match "node 0 names the rank of node 1" "rank 1 .*41" "$(tail -n 1 c0.out)"
check_match "node 1 too" "rank 1 .*41" "$(tail -n 1 c1.out)"

# A script that is not there on node 1 ends both nodes, though restarts are left.
if command -v python3 > /dev/null; then
  next_port
  mkdir here there && echo 'import time; time.sleep(1000)' > here/script.py
  (cd here && start 0 ../e0 --secret-file ../secret --max-restarts 3 script.py)
  (cd there && start 1 ../e1 --secret-file ../secret --max-restarts 3 script.py)
  ended e0; ended e1
  check_eq "a script that is not there on node 1: the status of both" "127 127" "$(rc e0) $(rc e1)" || show e0 e1
  check_match "node 0 says so" "rank 1 .*cannot start script.py: No such file" "$(tail -n 1 e0.out)"
else
  skip "a script that is not there on node 1" "no python3"
fi

# Strangers while the job runs: a wrong secret, silence, garbage; then the right node, and nothing was disturbed.
next_port
start 0 d0 --secret-file secret -- "$TOYW" touch=d.started wait=d.go
wait_until 20 sh -c "ip netns exec $NETNS_TAG-0 ss -Hltn | grep -q :$port" || not_ok "node 0 listens" "$(cat d0.out)"
start 1 d-wrong --secret-file other -- "$TOYW" touch=d.started
ended d-wrong
check_eq "a wrong secret is refused" 75 "$(rc d-wrong)"
check_match "and told so" "secret" "$(cat d-wrong.out)"
start 1 d-clear --insecure -- "$TOYW" touch=d.started
head -c 300000 /dev/urandom > garbage
for what in garbage /dev/zero; do
  on_node 1 timeout 200 bash -c "exec 3<>/dev/tcp/10.77.77.1/$port && head -c 300000 $what >&3; cat <&3 > /dev/null" 2> /dev/null
done
ok "garbage and oversized frames are cut off"
on_node 1 timeout 600 bash -c "exec 3<>/dev/tcp/10.77.77.1/$port; cat <&3 > /dev/null; echo closed > idle" &
check "a client that says nothing is cut off" wait_until 20 test -s idle
check "none of them started a worker" test ! -e d.started
check_eq "node 0 still waits" none "$(rc d0)"
kill $(pgrep -f -- "--rdzv-endpoint 10.77.77.1:$port --insecure") 2> /dev/null
start 1 d1 --secret-file secret -- "$TOYW" touch=d.started wait=d.go
check "the world forms all the same" wait_until 30 sh -c '[ "$(wc -l < d.started)" = 2 ]'
touch d.go
ended d0; ended d1
check_eq "and ends well" "0 0" "$(rc d0) $(rc d1)"
check_eq "the secret is in no output and no file of a run" "./secret" "$(grep -rlF -- "$(cat secret)" .)"

# Nodes that were started differently.
next_port
start 0 e0 --rdzv-id e --secret-file secret --nproc-per-node 2 -- "$TOYW" wait=e.never
start 1 e1 --rdzv-id e --secret-file secret --nnodes 1:2 --nproc-per-node 2 -- "$TOYW" wait=e.never
ended e1
check_eq "another number of nodes is refused" 78 "$(rc e1)"
check_match "with both numbers" "for 1:2 nodes.*for 2:2" "$(cat e1.out)"
start 1 e2 --rdzv-id e --secret-file secret --nproc-per-node 2 "$SOURCE/configs/quickstart.yaml"
ended e2
check_eq "a job that joins a program is refused" 78 "$(rc e2)"
pkill -TERM -f -- "--rdzv-endpoint 10.77.77.1:$port" ; ended e0
check_eq "a node that waits for others can be stopped" 143 "$(rc e0)"

# The link is cut without a word: both sides end with 76 within 10 s, and nothing is left.
next_port
start 0 f0 --secret-file secret -- "$TOYW" touch=f.started daemon wait=f.never
start 1 f1 --secret-file secret -- "$TOYW" touch=f.started daemon wait=f.never
wait_until 30 sh -c '[ "$(wc -l < f.started)" = 2 ]' || not_ok "the world forms" "$(cat f0.out f1.out)"
cut_link
before=$(date +%s%N)
ended f0 30; ended f1 30
took=$((($(date +%s%N) - before) / 1000000))
heal_link
check_eq "a cut link ends both nodes with 76" "76 76" "$(rc f0) $(rc f1)"
check "within 10 s ($took ms)" in_good_time 10000 "$took"
check_match "node 0 says which node" "node 1" "$(tail -n 1 f0.out)"
check_match "node 1 says that it lost its coordinator" "link to the coordinator" "$(tail -n 1 f1.out)"
check "no worker is left on either" wait_until 5 none_alive "$TOYW touch=f.started"

# A node's agent is killed.
next_port
start 0 g0 --secret-file secret -- "$TOYW" touch=g.started wait=g.never
start 1 g1 --secret-file secret -- "$TOYW" touch=g.started daemon wait=g.never
wait_until 30 sh -c '[ "$(wc -l < g.started)" = 2 ]'
kill -9 $(pgrep -f -- "^$RUN --nnodes 2 --node-rank 1 --rdzv-endpoint 10.77.77.1:$port" | head -n 1)
ended g0 30
check_eq "a killed agent is a lost node" 76 "$(rc g0)"
check "and leaves nothing on its node" wait_until 5 none_alive "$TOYW touch=g.started"

# Ctrl-C on one node stops both.
next_port
start 0 h0 --secret-file secret -- "$TOYW" touch=h.started wait=h.never
start 1 h1 --secret-file secret -- "$TOYW" touch=h.started wait=h.never
wait_until 30 sh -c '[ "$(wc -l < h.started)" = 2 ]'
kill -INT $(pgrep -f -- "^$RUN --nnodes 2 --node-rank 1 --rdzv-endpoint 10.77.77.1:$port" | head -n 1)
ended h0; ended h1
check_eq "an interrupt on node 1 stops both" "130 130" "$(rc h0) $(rc h1)"

# Without a secret nothing starts.
check_status "more than one node without a secret is refused" 2 on_node 0 "$RUN" --nnodes 2 --node-rank 0 --rdzv-endpoint 10.77.77.1:$port -- "$TOYW"
check_match "with the remedy" "secret-file" "$(cat "$WORK/err")"
exit $((n_failed > 0))
