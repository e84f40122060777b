# A program on several nodes, with no directory in common, whose leader is lost: an etcd says which node leads then.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/etcd.sh
if ! command -v etcd > /dev/null; then skip "test_takeover_etcd: all of it" "$etcd_needs"; exit 0; fi
fuse=''
at_exit() { kill -KILL $fuse; umount -l "$WORK/hang"; kill_agents; kill -KILL $etcd_pid; } 2> /dev/null
port=$(port_block)
cd "$WORK" || exit 1
new_secret secret

etcd_up 127.0.0.1 "$port" || not_ok "the etcd answers" "$(tail -n 3 etcd.out)"

# Each rank notes the size of its world, and runs until it may end.
export NOTES=$WORK/notes
mkdir notes
cat > rank.sh << 'RANK'
echo "$WORLD_SIZE" > "$NOTES/term-$FSDPRUN_TERM.$RANK"
while [ ! -e "$NOTES/end" ]; do read -r -t 0.1 <> <(:) || :; done
RANK
lease=$((2 * $(pace)))
# nodes NAME PORT [LOGS]: NAME1 to NAME3, of the run NAME-PORT; their logs are in LOGS, or in a folder each
nodes() {
  local i
  for i in 1 2 3; do
    begin "$1$i" timeout -k 5 600 "$BIN/fsdprun" --nnodes 1:3 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$2" \
      --rdzv-id "$1-$2" --local-addr "127.0.0.$i" --secret-file secret --rdzv-conf "lease=$lease,last_call_timeout=60" \
      --nproc-per-node 1 --log-dir "${3:-logs-$1$i}" --redirects 3 --arbiter "etcd://127.0.0.1:$((port + 3)),127.0.0.1:$port" \
      --no-python bash rank.sh
    [ $i != 1 ] || wait_until 30 has "$1$i" "this node hosts"
  done
}
# They need no directory at all.
nodes n $((port + 2)) /dev/null
check "three nodes run, in term 1; the first member of the etcd is not there" wait_until 60 test -e notes/term-1.2
power_off n1
check "their leader is lost: the others run, in term 2" wait_until 60 test -e notes/term-2.1
check_eq "... without it" 2 "$(cat notes/term-2.1)"
touch notes/end
check_ends "... and both end with 0" "0 0" n2 n3
check "the etcd has the run's key" grep -q "fsdprun/n-$((port + 2))/leader" -r etcd

# The node that would take the leader's place cannot: where its events would go, there is a directory.
export NOTES=$WORK/more
mkdir more
nodes m $((port + 4))
wait_until 60 test -e more/term-1.2
mkdir "$(echo logs-m2/*)/events.jsonl"
kill -STOP "$(inner_of m3)" # on a busy machine it might be first, while m2 still finds that its turn has come
power_off m1
wait_until 60 has m2 "leads the job from now on"
kill -CONT "$(inner_of m3)" "$(agent_of m3)"
check "a node takes the leader's place, and cannot lead: the next one does" wait_until 60 test -e more/term-3.0
check_eq "... alone" 1 "$(cat more/term-3.0)"
check "... at once: the one that could not has said so in the record" has m3 "leads the job from now on (term 3); .* could not take the lead"
touch more/end
check_ends "... and ends with 0; the one that could not ends as is due" "78 0" m2 m3
# The run directory of the node that would take the place does not answer. The host is lost before a world forms.
mkdir hang
"$TOY/hang_fuse" hang mounted & fuse=$!
if wait_until 5 test -e mounted -o ! -d "/proc/$fuse/fd"; [ -e mounted ]; then
  for i in 1 2; do
    [ $i = 1 ] && dir=$WORK/shared || dir=$WORK/hang/shared
    begin "o$i" timeout -k 5 600 "$BIN/fsdprun" --nnodes 3 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$((port + 6))" \
      --rdzv-id "o-$port" --local-addr "127.0.0.$i" --secret-file secret --rdzv-conf "lease=$lease" --nproc-per-node 1 \
      --run-dir "$dir" --arbiter "etcd://127.0.0.1:$port" --no-python bash rank.sh
    [ $i != 1 ] || wait_until 30 has o1 "this node hosts"
  done
  wait_until 30 has o2 "waiting for the world to form"
  power_off o1
  check "a node takes the leader's place, and its run directory does not answer" wait_until 60 has o2 "this node leads the job from now on"
  check "... so it gives that up" wait_until 60 has o2 "this node cannot take over: the run directory .*hang/shared does not answer"
  check_ends "... and ends with 74" 74 o2
else
  skip "a run directory that does not answer" "needs root and /dev/fuse"
fi

few=(--nnodes 2 --rdzv-endpoint 127.0.0.1:1 --insecure)
check_status "a program needs a name for its run in the etcd" 2 "$BIN/fsdprun" "${few[@]}" --arbiter "etcd://127.0.0.1:$port" --no-python true
check_status "members that cannot be are refused" 2 "$BIN/fsdprun" "${few[@]}" --rdzv-id a --arbiter etcd://a:b:c --no-python true
