# The loop of an agent is busy for three leases: it reads and writes nothing. Its threads go on. So a member's lease
# is extended, its host does not take it for lost, and no rank is killed. A leader answers its members, and renews its
# record in the run directory.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
at_exit() { kill_agents; }
port=$(port_block)
cd "$WORK" || exit 1
new_secret secret
lease=$((1 + $(pace)))
# nodes NAME OPTIONS...: two agents of one run, NAME-1 to NAME-2. Each rank adds a line to NAME.started.
nodes() {
  local name=$1 i
  shift
  port=$((port + 1))
  for i in 1 2; do
    begin "$name-$i" timeout -k 5 600 "$BIN/fsdprun" --nnodes 2 --max-restarts 3 --rdzv-backend c10d \
      --rdzv-endpoint "127.0.0.1:$port" --local-addr "127.0.0.$i" --rdzv-conf "lease=$lease" "$@" \
      -- "$TOY/toy" touch="$name.started" wait="$name.go"
    [ "$i" != 1 ] || wait_until 30 has "$name-1" "this node hosts"
  done
  wait_until 60 lines "$name.started" 2
}
# bears NAME I WHAT: the loop of NAME-I is busy
bears() {
  "$TOY/busy_loop" "$(inner_of "$1-$2")" $((3 * lease))
  case $? in
  77) skip "$3" "the system does not let a process stop a thread of another"; return ;;
  0) ;;
  *) not_ok "$3: the loop was busy" ;;
  esac
  touch "$1.go"
  check_ends "$3: both nodes end with 0" "0 0" "$1-1" "$1-2"
  check_eq "... and no rank was started again" 2 "$(wc -l < "$1.started")"
  check_eq "... or lost its coordinator" "" "$(grep -hE "was lost|no answer|lease|may not lead" "$1-1.out" "$1-2.out")"
}
nodes keyed --secret-file secret
bears keyed 2 "the loop of a member is busy for $((3 * lease)) s, the lease is $lease s"
nodes clear --insecure
bears clear 2 "the same without a secret"
nodes host --secret-file secret
bears host 1 "the same of the host"
nodes leader --secret-file secret --log-dir led
bears leader 1 "the same of a leader by the leave of an arbiter"
