# Two nodes of which one is lost, or stands still: how long what is left of the world may take to end, and that
# no two generations run at a time.
# Long
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
toy_agents
at_exit() { kill_agents; netns_down; umount -l "$WORK/hang" 2> /dev/null; }

# start NAME N OPTIONS...: an agent at 127.0.0.N in the background
start() {
  local name=$1 at=$2
  shift 2
  begin "$name" timeout -k 5 1200 "$RUN" --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" \
    --local-addr "127.0.0.$at" "$@"
}
# world NAME N OPTIONS...: the agents NAME1, which hosts, and NAME2, as soon as N workers have written to
# NAME.started.
world() {
  local name=$1 n=$2
  shift 2
  port=$((port + 1))
  start "${name}1" 1 "$@"
  wait_until 10 has "${name}1" "this node hosts"
  start "${name}2" 2 "$@"
  wait_until 30 lines "$name.started" "$n"
}
ms() { echo $(($(date +%s%N) / 1000000)); }

# Workers that ignore TERM, and the default grace of 30 s: after a loss they have 5 s.
for lost in 2 1; do
  name=a$lost left=a$lost$((3 - lost))
  world "$name" 2 --insecure --nnodes 2 -- "$TOYW" ignore=15 touch="$name.started" hang
  began=$(ms)
  power_off "$name$lost"
  check_ends "node $((lost - 1)) loses power: 76 on the other" "76" "$left"
  took=$(($(ms) - began))
  check "within 10 s, though its workers ignore TERM ($took ms)" in_good_time 10000 "$took"
  check "and none of them is left" wait_until 10 none_alive "$TOYW ignore=15 touch=$name.started"
done

# A rank fails first, as ranks do whose peers are gone: its node's other rank is in the grace already.
world b 4 --insecure --nnodes 2 --nproc-per-node 2 -- "$TOYW" catch=15:b.term touch=b.started rank=1 wait=b.fails rank=1 exit=3 hang
touch b.fails
check "a rank fails, and the other of its node is asked to end" wait_until 30 test -s b.term
began=$(ms)
power_off b2
ended b1
took=$(($(ms) - began))
check "a node is lost while the others are in the grace: it is cut short ($took ms)" in_good_time 10000 "$took"

# gone NAME RANK: has the worker of this rank, which wrote its pid to NAME.started, ended? An agent that stands
# still does not reap it.
gone() {
  local state
  state=$(awk '/^State/ { print $2 }' "/proc/$(awk -v rank="$2" '$1 == rank { print $2; exit }' "$1.started")/status" 2> /dev/null)
  [ -z "$state" ] || [ "$state" = Z ]
}
# leased PID: yes, if this agent has the page that it shares with its guard
leased() { grep -q fsdp-lease "/proc/$1/maps" && echo yes || echo no; }

# An agent that is killed: its guard says that nothing of it is left, so nobody waits for its lease. The session
# is there with TLS and without.
printf 'a secret of thirty-two bytes, at least' > secret
chmod 600 secret
for with in "--insecure" "--secret-file secret"; do
  name=i${#with}
  # shellcheck disable=SC2086
  world "$name" 2 $with --nnodes 1:2 -- "$TOYW" touch="$name.started" wait="$name.go"
  began=$(ms)
  kill -KILL "$(inner_of "${name}2")"
  check "an agent is killed ($with): the other node goes on alone" wait_until 60 lines "$name.started" 3
  took=$(($(ms) - began))
  check "... long before its lease of 3.5 s is over ($took ms)" in_good_time 1500 "$took"
  touch "$name.go"
  check_ends "... and ends with 0" "0 137" "${name}1" "${name}2"
done

# Both are killed at once: nobody can say that the ranks are gone, so their lease is waited for.
world j 2 --insecure --nnodes 1:2 -- "$TOYW" touch=j.started wait=j.go
began=$(ms)
power_off j2
check "guard and agent are killed at once: the other node goes on alone" wait_until 60 lines j.started 3
took=$(($(ms) - began))
check "... when the lease of 3.5 s is over, and not before ($took ms)" test "$took" -gt 3500
touch j.go
check_ends "... and ends with 0" "0" j1

# An agent that stands still: its guard kills its rank when the lease is over, and the others go on.
world c 2 --insecure --nnodes 1:2 -- "$TOYW" rank=1 ignore=15 touch=c.started wait=c.go
inner=$(inner_of c2)
check_eq "a node of several has a lease" yes "$(leased "$inner")"
began=$(ms)
kill -STOP "$inner"
check "an agent is stopped for good: its rank ends" wait_until 30 gone c 1
took=$(($(ms) - began))
check "with its lease of 3.5 s ($took ms)" in_good_time 3800 "$took"
check "and the other node goes on alone" wait_until 60 lines c.started 3
kill -CONT "$inner"
check "the stopped one joins again when it runs again" wait_until 60 lines c.started 5
touch c.go
check_ends "and both end with 0" "0 0" c1 c2

# Agents that stand still together, longer than the lease: nothing is lost but the generation.
world d 2 --insecure --nnodes 2 --max-restarts 1 -- "$TOYW" touch=d.started wait=d.go
stand_still 5 d1 d2
check "two agents are stopped for longer than the lease: a new generation begins" wait_until 60 lines d.started 4
check "... because the ranks of one had to be killed" has d1 "node 1 .*no answer from the coordinator for too long, and its ranks were killed"
check "... which it says too" has d2 "no answer of the coordinator, .*, for 3.5 s: the ranks of this node are killed"
touch d.go
check_ends "... and both nodes end with 0" "0 0" d1 d2
world f 2 --insecure --nnodes 2 -- "$TOYW" touch=f.started wait=f.go
stand_still 5 f1 f2
check_ends "without a restart left, both end with 76" "76 76" f1 f2

# Ctrl-Z for longer than the lease stops a node's ranks too. After fg they are killed before they can do anything.
world l 2 --insecure --nnodes 1:2 -- "$TOYW" touch=l.started wait=l.go
press_ctrl_z 5 l2
check "Ctrl-Z for longer than the lease: the other goes on alone, and the node joins again after fg" wait_until 60 lines l.started 5
touch l.go
check_ends "... and both end with 0" "0 0" l1 l2

# A longer lease, which the host names.
port=$((port + 1))
start g1 1 --insecure --nnodes 2 --rdzv-conf lease=600 -- "$TOYW" touch=g.started wait=g.go
wait_until 10 has g1 "this node hosts"
start g2 2 --insecure --nnodes 2 -- "$TOYW" touch=g.started wait=g.go
wait_until 30 lines g.started 2
stand_still 5 g1 g2
touch g.go
check_ends "a stop that is shorter than the host's lease costs nothing" "0 0" g1 g2
check_eq "... and starts no worker again" 2 "$(wc -l < g.started)"

# One node has no lease.
begin h timeout -k 5 1200 "$RUN" -- "$TOYW" touch=h.started wait=h.go
wait_until 30 lines h.started 1
check_eq "one node has no lease" no "$(leased "$(inner_of h)")"
touch h.go
check_ends "... and ends with 0" "0" h

# A rank that sleeps in the kernel, where KILL does not reach it: its node is left out until it has ended.
cat > sleeper << 'END'
#!/bin/sh
echo "$RANK of $WORLD_SIZE" >> k.started
if [ ! -e k.later ]; then
  [ "$RANK" = 1 ] && { echo $$ > k.pid; exec cat hang/file; }
  until [ -s k.pid ] && grep -qx "$(cat k.pid)" mounted; do sleep 0.05; done
  touch k.later
  exit 3
fi
until [ -e k.go ]; do sleep 0.05; done
END
chmod +x sleeper
mkdir hang
"$TOY/hang_fuse" hang mounted & fuse=$!
if wait_until 5 test -e mounted -o ! -d "/proc/$fuse/fd"; [ -e mounted ]; then
  world k 2 --insecure --nnodes 1:2 --max-restarts 1 --shutdown-timeout 0 -- ./sleeper
  check "a rank that KILL does not reach: the world begins again without its node" wait_until 60 grep -qx "0 of 1" k.started
  check "... which its coordinator says once" wait_until 20 has k1 "127.0.0.2) is left out until 1 process of it, which cannot be killed, has ended"
  check_eq "... and nothing runs there" 3 "$(wc -l < k.started)"
  { kill -KILL "$fuse"; wait "$fuse"; } 2> /dev/null
  check "when the process has ended, the node takes part again" wait_until 60 lines k.started 5
  check_eq "... in a world of two" "0 of 2 1 of 2" "$(tail -n 2 k.started | sort | xargs)"
  check "... which is said too" has k1 "127.0.0.2) takes part again"
  touch k.go
  check_ends "... and both nodes end with 0" "0 0" k1 k2
else
  skip "a rank that KILL does not reach" "needs root and /dev/fuse"
fi

# A cut: the new world begins when no rank of the old one is left.
netns_up || { skip "a cut" "needs root, ip and nft for network namespaces"; exit 0; }
cut_start() {
  begin "$2" on_node "$1" timeout -k 5 1200 "$RUN" --rdzv-backend c10d --rdzv-endpoint "10.77.77.1:$port" \
    --insecure --nnodes 1:2 -- "$TOYW" rank=1 ignore=15 touch=e.started wait=e.go
}
port=$((port + 1))
cut_start 0 e1
cut_start 1 e2
wait_until 30 lines e.started 2 || not_ok "the world forms" "$(cat e1.out e2.out)"
cut_link
check "a cut: the coordinator's side goes on alone" wait_until 60 lines e.started 3
check "... when the rank on the other side has ended" gone e 1
check "the node that was cut off says that it joins again" wait_until 20 has e2 "the link to the coordinator, .*, was lost: .*; this node .*joins again"
guard=$(agent_of e2)
heal_link
check "... which it does when the cut is mended" wait_until 60 lines e.started 5
check_eq "... by the same agent" "$guard" "$(agent_of e2)"
touch e.go
check_ends "... and both nodes end with 0" "0 0" e1 e2
