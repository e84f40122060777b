# The agent's key-value store, byte by byte on real sockets: a worker of fsdprun talks to it at
# MASTER_ADDR:MASTER_PORT.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
at_exit() { touch "$WORK/never" "$WORK/go"; netns_down; }

RUN=$BIN/fsdprun
CLIENT=$TOY/store_client
TOYW=$TOY/toy
cd "$WORK" || exit 1

# What it is asked, and what it answers.
check_status "every operation, byte by byte, is answered as by PyTorch's own server" 0 timeout 3000 "$RUN" -- "$CLIENT" conversation
check_status "what is not the protocol ends its connection and no other" 0 timeout 1200 "$RUN" -- "$CLIENT" refusals
check_eq "and is said once, with the count at the end" "1 1" \
  "$(grep -c 'closed a connection: VALIDATE: 0x04030201' err) $(grep -c 'refused or closed 2 connections in all' err)"

check_status "a client that asks much and reads nothing holds up nobody" 0 timeout 1200 "$RUN" -- "$CLIENT" slow

# Ten thousand clients, from a process of their own.
if [ "$(ulimit -Hn)" != unlimited ] && [ "$(ulimit -Hn)" -lt 10100 ]; then
  skip "10,000 clients" "the limit of open files is $(ulimit -Hn)"
else
  check_status "10,000 clients" 0 timeout 3000 "$RUN" -- "$CLIENT" many=10000
  sed 's/^/# /' out
  check "for less than 4 kB of the agent's memory each" \
    awk 'match($0, /agent [0-9]+ kB \([0-9]+ before/) { split(substr($0, RSTART, RLENGTH), w, /[ (]+/); bad = w[2] - w[4] > 40000; n++ } END { exit bad || n != 1 }' out
fi

# A store for each generation.
check_status "a restart" 0 timeout 600 "$RUN" --max-restarts 2 -- sh -c \
  "'$CLIENT' fresh=ports && [ \$TORCHELASTIC_RESTART_COUNT = 2 ]"
check_eq "begins with an empty store at another port each time" "3 3" "$(wc -l < ports | tr -d ' ') $(uniq ports | wc -l | tr -d ' ')"
port=$(tail -n 1 ports)
check_status "a port that is named" 0 timeout 600 "$RUN" --master-port "$port" --max-restarts 1 -- sh -c \
  "'$CLIENT' fresh=named && [ \$TORCHELASTIC_RESTART_COUNT = 1 ]"
check_eq "is kept in every generation" "$port $port" "$(tr '\n' ' ' < named | sed 's/ $//')"
check_status "an endpoint that is named" 0 timeout 600 "$RUN" --rdzv-endpoint "127.0.0.1:$port" -- sh -c \
  "[ \$MASTER_ADDR = 127.0.0.1 ] && [ \$MASTER_PORT = $port ] && '$CLIENT' connect"

# A port that is taken.
"$RUN" --master-port "$port" -- "$TOYW" touch=holds wait=go > hold.out 2>&1 &
holder=$!
wait_until 30 test -s holds || not_ok "the first run holds the port" "$(cat hold.out)"
check_status "a port that is taken is no world" 75 timeout 600 "$RUN" --master-port "$port" -- "$TOYW" touch=started
check_match "and is named" "port $port is in use" "$(tail -n 1 err)"
check "no worker was started" test ! -e started
if command -v ss > /dev/null; then
  check_eq "one node listens on loopback only" "127.0.0.1:$port" "$(ss -Hltn "sport = :$port" | awk '{print $4}')"
  own=$(hostname -I 2> /dev/null | cut -d ' ' -f 1)
  cat > listens.sh << 'END'
ss -Hltn "sport = :$MASTER_PORT" | awk '{ sub(/:[0-9]*$/, "", $4); printf "%s ", $4 }'
"$1" connect > /dev/null
echo "$MASTER_ADDR $?"
END
  for named in 0.0.0.0 ${own:-0.0.0.0}; do
    check_eq "... whatever address of the host is named ($named)" "127.0.0.1 127.0.0.1 0" \
      "$(timeout 600 "$RUN" --master-addr "$named" -- sh "$PWD/listens.sh" "$CLIENT")"
  done
else
  skip "one node listens on loopback only" "needs ss"
fi
touch go
wait "$holder"
check_eq "the first run is not disturbed" 0 $?
check_status "an address of another host is refused" 75 timeout 600 "$RUN" --master-addr 192.0.2.1 -- "$TOYW"
check_match "by its name" "192.0.2.1" "$(tail -n 1 err)"

# The link is the one socket that a worker has.
check_eq "nothing of the store is inherited" 1 \
  "$("$RUN" -- sh -c 'ls -l /proc/self/fd' < /dev/null 2> fds.err | grep -c 'socket:')"

# Another user of the same host.
if [ "$(id -u)" != 0 ] || ! command -v setpriv > /dev/null; then
  skip "another user" "needs root and setpriv"
else
  chmod 755 "$WORK"
  cp "$CLIENT" client && chmod 755 client
  check_status "another user's connection" 3 timeout 600 "$RUN" -- setpriv --reuid=65534 --clear-groups ./client connect
  check_match "is refused, and named" "refused a connection of another user \(uid 65534\)" "$(cat err)"
  check_status "our own is not" 0 timeout 600 "$RUN" -- ./client connect
fi

# Several hosts: the nodes are welcome, others are not.
if ! netns_up; then
  skip "addresses outside the job" "needs root, ip and nft for network namespaces"
  exit
fi
port=$(port_block)
ip -n "$NETNS_TAG-1" addr add 10.77.77.3/24 dev "v1-$$"
new_secret secret
start() { # NODE NAME PORT WORDS...
  local node=$1 name=$2 at=$3
  shift 3
  begin "$name" on_node "$node" timeout -k 5 1200 "$RUN" --nnodes 2 --node-rank "$node" \
    --rdzv-endpoint "10.77.77.1:$at" --secret-file secret "$@"
}
start 0 n0 $port -- sh -c "'$CLIENT' connect && echo \$MASTER_ADDR \$MASTER_PORT > at && '$TOYW' wait=never"
start 1 n1 $port -- sh -c "'$CLIENT' connect && echo served > node1; '$TOYW' wait=never"
check "the workers of both nodes are served" wait_until 60 sh -c 'test -s at && test -s node1' || { cat n0.out n1.out >&2; }
read -r address at_port < at
check_eq "at the address that reaches node 0" 10.77.77.1 "$address"
check_eq "which is all it listens on" "10.77.77.1:$at_port" "$(on_node 0 ss -Hltn "sport = :$at_port" | awk '{print $4}')"
check_status "an address that is no node's" 3 on_node 1 env MASTER_ADDR="$address" MASTER_PORT="$at_port" timeout 600 "$CLIENT" from=10.77.77.3 connect
check_match "is refused, and named" "10.77.77.3, which is no node of this job" "$(cat n0.out)"
check_status "a node's is served" 0 on_node 1 env MASTER_ADDR="$address" MASTER_PORT="$at_port" timeout 600 "$CLIENT" from=10.77.77.2 connect
if command -v setpriv > /dev/null; then
  check_status "another user on node 0 is refused too" 3 on_node 0 setpriv --reuid=65534 --clear-groups \
    env MASTER_ADDR="$address" MASTER_PORT="$at_port" timeout 600 ./client connect
fi
# Where the name that the workers are told is loopback on its own host, the others reach the store all the
# same.
if getent hosts localhost > /dev/null; then
  start 0 n2 $((port + 1)) --master-addr localhost -- sh -c 'echo $MASTER_PORT > named-at'
  start 1 n3 $((port + 1)) --master-addr localhost -- env MASTER_ADDR=10.77.77.1 "$CLIENT" connect
  check_ends "a name that is loopback on its own host is reached by the address of node 0 too" "0 0" n2 n3
else
  skip "a name that is loopback on its own host" "localhost is not known here (no /etc/hosts)"
fi
touch never
check_ends "both nodes end well" "0 0" n0 n1
