# Strangers who hold connections to the endpoint, say nothing, and renew each that is cut: nodes get in all
# the same.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
RUN=$BIN/fsdprun
TOYW=$TOY/toy
port=$(port_block)
cd "$WORK" || exit 1
at_exit() { kill -9 $(jobs -p) 2> /dev/null; }
new_secret secret

# start NAME OPTIONS...
start() {
  local name=$1; shift
  begin "$name" timeout -k 5 900 "$RUN" --nnodes 2 --rdzv-endpoint "127.0.0.1:$port" --rdzv-conf join_timeout=60 "$@"
}

# against NAME SOURCE OPTIONS...: 100 idle connections from SOURCE, before the other node comes and until both
# have ended
against() {
  local name=$1 source=$2 attacker; shift 2
  port=$((port + 1))
  start "$name-0" --node-rank 0 "$@" -- "$TOYW" touch="$name.started" wait="$name.go"
  wait_until 20 has "$name-0" "this node hosts" || not_ok "the host listens" "$(cat "$name-0.out")"
  "$TOY/idle_clients" "$source" "$port" 100 "$name.attacked" & attacker=$!
  wait_until 30 test -e "$name.attacked" || not_ok "100 connections are there" "$(tail -n 5 "$name-0.out")"
  start "$name-1" --node-rank 1 "$@" -- "$TOYW" touch="$name.started" wait="$name.go"
  check "100 idle connections from $source, $*: a node at 127.0.0.1 gets in" wait_until 30 lines "$name.started" 2 || tail -n 3 "$name-1.out" >&2
  check "while they are held" kill -0 "$attacker"
  touch "$name.go"
  ended "$name-0" "$name-1"
  check_eq "and both nodes end with 0" "0 0" "$(rcs "$name-0" "$name-1")"
  kill -9 "$attacker" 2> /dev/null
  wait "$attacker" 2> /dev/null
}
against other 127.0.0.66 --secret-file secret
against same 127.0.0.1 --secret-file secret
against clear 127.0.0.66 --insecure

# Strangers who send garbage are cut at once. What is said of them is limited.
port=$((port + 1))
start garbage --node-rank 0 --secret-file secret -- "$TOYW"
wait_until 20 has garbage "this node hosts" || not_ok "the host listens" "$(cat garbage.out)"
for i in $(seq 60); do
  timeout 10 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port && echo 'GET / HTTP/1.1' >&3; cat <&3 > /dev/null" 2> /dev/null
done
start proper --node-rank 1 --secret-file secret -- "$TOYW"
ended garbage proper
check_eq "60 strangers who send garbage: at most 21 lines" "20 1" \
  "$(grep -c 'a connection from 127.0.0.1:[0-9]* was dropped' garbage.out) $(grep -c 'further strangers' \
  garbage.out)"
check_eq "60 strangers who send garbage: a node gets in after them" "0 0" "$(rcs garbage proper)"
