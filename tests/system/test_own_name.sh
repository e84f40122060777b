# An endpoint that is the host's own name, where that host's /etc/hosts gives 127.0.1.1 for it (Debian's
# default): it listens on every address, and each address that other nodes or ranks are told can be reached by
# them.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
at_exit() { netns_down; rm -rf "/etc/netns/$NETNS_TAG-0" "/etc/netns/$NETNS_TAG-1"; }
netns_up || { skip "an endpoint by the host's own name" "needs root, ip and nft for network namespaces"; exit 0; }

RUN=$BIN/fsdprun
TOYW=$TOY/toy
port=$(port_block)
tiny_job "$WORK/job.yaml"
cd "$WORK" || exit 1

# hosts NODE LINE...: /etc/hosts of a node, as `ip netns exec` mounts it
hosts() {
  local i=$1
  shift
  mkdir -p "/etc/netns/$NETNS_TAG-$i" && printf '%s\n' "127.0.0.1 localhost" "$@" > "/etc/netns/$NETNS_TAG-$i/hosts"
}
hosts 0 "127.0.1.1 own-name" && hosts 1 "10.77.77.1 own-name"
if ! on_node 0 getent hosts own-name | grep -q '^127\.0\.1\.1'; then
  skip "an endpoint by the host's own name" "a namespace has no /etc/hosts of its own here"; exit 0
fi

# start NODE NAME OPTIONS...
start() {
  local node=$1 name=$2; shift 2
  begin "$name" on_node "$node" timeout -k 5 1200 "$RUN" --insecure "$@"
}
# listeners PORT: the addresses on node 0 that have a listener at the port
listeners() { on_node 0 ss -Hltn "sport = :$1" | awk '{print $4}' | sort | tr '\n' ' ' | sed 's/ $//'; }
meet=(--rdzv-backend c10d --rdzv-endpoint)

start 0 a0 --nnodes 1:2 --rdzv-conf last_call_timeout=20,join_timeout=40 "${meet[@]}" own-name:$port -- "$TOYW" env=MASTER_ADDR env=WORLD_SIZE
check "the host says that it hosts, by the name" wait_until 20 has a0 "this node hosts, at own-name:$port"
start 1 a1 --nnodes 1:2 --rdzv-conf join_timeout=20 "${meet[@]}" own-name:$port -- "$TOYW" env=MASTER_ADDR env=WORLD_SIZE
check_ends "two nodes meet at the host's own name" "0 0" a0 a1
check_eq "in one world" "2 2" "$(values WORLD_SIZE a0.out a1.out)"
check_eq "and both are told an address of the host that both can reach" "10.77.77.1 10.77.77.1" "$(values MASTER_ADDR a0.out a1.out)"

port=$((port + 1))
for i in 0 1; do start $i "b$i" --nnodes 2 --node-rank $i --master-addr own-name --master-port $port -- "$TOYW" env=MASTER_ADDR; done
check_ends "static, with the name as --master-addr" "0 0" b0 b1
check_eq "names the address, too" "10.77.77.1 10.77.77.1" "$(values MASTER_ADDR b0.out b1.out)"

# Two agents on the host, which meet over loopback, and one on another: each rank connects to those before it.
port=$((port + 1))
job=(--nnodes 3 "${meet[@]}" own-name:$port --rdzv-conf join_timeout=40 "$WORK/job.yaml" --set run.name=three --set train.steps=4)
start 0 c0 --node-rank 0 "${job[@]}"
wait_until 20 has c0 "this node hosts" || not_ok "the host listens" "$(cat c0.out)"
start 1 c2 --node-rank 2 "${job[@]}"
start 0 c1 --node-rank 1 "${job[@]}"
check_ends "a job of two agents on the host and one elsewhere" "0 0 0" c0 c1 c2

# IPv6: the other node knows the name by an address of that family only.
if ip -n "$NETNS_TAG-0" addr add fd77:77::1/64 dev "v0-$$" nodad 2> /dev/null &&
  ip -n "$NETNS_TAG-1" addr add fd77:77::2/64 dev "v1-$$" nodad 2> /dev/null; then
  hosts 1 "fd77:77::1 own-name"
  port=$((port + 1))
  for i in 0 1; do start $i "d$i" --nnodes 2 --rdzv-conf join_timeout=20 "${meet[@]}" own-name:$port -- "$TOYW" env=MASTER_ADDR; done
  check_ends "over IPv6, though the host's own name is an IPv4 address" "0 0" d0 d1
  check_eq "with the address of that family" "fd77:77::1 fd77:77::1" "$(values MASTER_ADDR d0.out d1.out)"
  hosts 1 "10.77.77.1 own-name"
else
  skip "over IPv6" "no IPv6 in a namespace"
fi
on_node 0 sh -c 'for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done' 2> /dev/null
port=$((port + 1))
for i in 0 1; do start $i "e$i" --nnodes 2 --rdzv-conf join_timeout=20 "${meet[@]}" own-name:$port -- "$TOYW"; done
check_ends "on a host without IPv6" "0 0" e0 e1

# Who listens where: an endpoint on loopback, and a world of one node, are not to be reached from outside.
port=$((port + 1))
start 0 f0 --nnodes 2 --rdzv-conf join_timeout=60 "${meet[@]}" localhost:$port -- "$TOYW" wait=f.go
wait_until 20 has f0 "this node hosts" || not_ok "the host of localhost listens" "$(cat f0.out)"
check_eq "localhost is listened on at 127.0.0.1 only" "127.0.0.1:$port" "$(listeners $port)"
start 0 f1 --nnodes 2 --rdzv-conf join_timeout=60 "${meet[@]}" 127.0.0.1:$port -- "$TOYW" wait=f.go
touch f.go
check_ends "and two agents of one host meet there" "0 0" f0 f1
start 0 g0 --nnodes 1 --rdzv-endpoint own-name:$((port + 1)) -- "$TOYW" touch=g.started wait=g.go
wait_until 20 test -e g.started || not_ok "a world of one node starts" "$(cat g0.out)"
check_eq "one node by its own name listens on loopback only" "127.0.0.1:$((port + 1))" \
  "$(on_node 0 ss -Hltn | awk '{print $4}' | sort | tr '\n' ' ' | sed 's/ $//')"
touch g.go
check_ends "and ends well" "0" g0
