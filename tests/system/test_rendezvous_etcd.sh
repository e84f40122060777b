# Nodes that meet in an etcd: no node is the fixed host, none names another one, and any may come first.
# Long
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/etcd.sh
. tests/support/shell/train.sh
if ! command -v etcd > /dev/null; then skip "test_rendezvous_etcd: all of it" "$etcd_needs"; exit 0; fi
at_exit() { kill_agents; kill -KILL "${etcd_pids[@]}"; } 2> /dev/null
port=$(port_block)
cd "$WORK" || exit 1
head -c 32 /dev/urandom | base64 > secret; chmod 600 secret

etcd_up_three "$port" || not_ok "three members of an etcd serve" "$(tail -n 3 etcd-*.out)"
dead=127.0.0.1:$((port + 9)) # no process listens there

# Each rank notes the size of its world, and runs until it may end.
cat > rank.sh << 'RANK'
echo "$WORLD_SIZE $MASTER_ADDR" > "$NOTES/term-$FSDPRUN_TERM.$RANK"
while [ ! -e "$NOTES/end" ]; do read -r -t 0.1 <> <(:) || :; done
RANK
lease=$((2 * $(pace)))
# node RUN I NNODES ETCD [OPTIONS...]: the agent RUN-I of a run
node() {
  local run=$1 i=$2 nnodes=$3 etcd=$4
  shift 4
  mkdir -p "notes-$run"
  NOTES=$WORK/notes-$run begin "$run-$i" timeout -k 5 600 "$BIN/fsdprun" --nnodes "$nnodes" --rdzv-endpoint "etcd://$etcd" \
    --rdzv-id "$run-$port" --secret-file secret --rdzv-conf "lease=$lease,last_call_timeout=60" --nproc-per-node 1 "$@" \
    --no-python bash rank.sh
}
# hosts RUN N: which of its agents 1 to N says that it hosts, as a list
hosts() {
  local i
  for i in $(seq "$2"); do ! has "$1-$i" "this node hosts" || echo "$1-$i"; done
}
leads() { grep -l "this node leads the job" "$1"-*.out | sed 's/\.out$//'; }
noted() { [ "$(find "notes-$1" -name "term-$2.*" | wc -l)" = "$3" ]; }

# Started at once, in any order: one leads, the others find it.
for i in 1 2 3; do node a $i 1:3 "$dead,$etcd_urls"; done
check "three nodes form a world; one member of the etcd never answers" wait_until 60 noted a 1 3
first=$(hosts a 3)
check_eq "one of them hosts" 1 "$(wc -w <<< "$first")"
check_eq "its ranks are in one world, at its address" "3 127.0.0.1" "$(cat notes-a/term-1.2)"
power_off "$first"
check "their leader is lost: the others run, in term 2" wait_until 60 noted a 2 2
second=$(leads a)
check_eq "one of the others leads" 1 "$(grep -cv "^$first$" <<< "$second")"
# The lost node is started again: it finds the new leader, though it named no node.
node a 4 1:3 "$etcd_urls"
check "a node that comes finds the leader of now" wait_until 60 has a-4 "hosts, at 127.0.0.1:"
check "... and the world is whole again" wait_until 60 noted a 2 3
kill -KILL "$(etcd_leads)"
power_off "$second"
check "the etcd's leader is lost, and the job's with it: term 3" wait_until 90 noted a 3 2
touch notes-a/end
check_ends "the nodes that are left end with 0" "0 0" \
  $(for i in 1 2 3 4; do [ a-$i = "$first" ] || [ a-$i = "$second" ] || echo a-$i; done)

# Two nodes with one run directory. The first to come does not reach the etcd, and must not keep the other from leading.
node b 1 2 "$dead" --run-dir shared
check "a node that does not reach the etcd waits" wait_until 30 has b-1 "the arbiter (etcd) fails"
node b 2 1:2 "$etcd_urls" --run-dir shared --rdzv-conf "lease=$lease,last_call_timeout=1"
check "... and the other one has the run directory, and leads" wait_until 60 has b-2 "this node hosts"
check "... with its own rank" wait_until 60 noted b 1 1
node c 1 1:2 "$etcd_urls" --run-dir shared
check "another run in that directory is refused" wait_until 120 test -e c-1.rc
check_eq "... with 78, and the process that has it" "78 1" "$(cat c-1.rc) $(grep -c "is in use by another live job\|holds it\|pid $(inner_of b-2)" c-1.out)"
touch notes-b/end
check_ends "the run ends with 0" 0 b-2
signal b-1 TERM
check_ends "a signal ends the node that waits" 143 b-1

# A leader is stopped for good before anything was formed: who waits for it takes its place.
node d 1 2 "$etcd_urls"
check "a node hosts, and waits" wait_until 60 has d-1 "this node hosts"
power_off d-1
for i in 2 3; do node d $i 2 "$etcd_urls"; done
check "two more come: one of them leads when the record is stale" wait_until 120 noted d 2 2
touch notes-d/end
check_ends "... and both end with 0" "0 0" d-2 d-3

# A job, whose run directory is shared. Ten steps a second, so that it is not over before its leader is lost.
tiny_job job.yaml
mkdir bin && cp "$BIN/fsdprun" bin/ && cp "$TOY/fsdp_train_mutant" bin/fsdp-train
for i in 1 2 3; do
  FSDP_TEST_SLOW=data:0:100 begin "job-$i" timeout -k 5 600 bin/fsdprun --nnodes 2:3 --rdzv-endpoint "etcd://$etcd_urls" \
    --local-addr "127.0.0.$i" --secret-file secret --rdzv-conf "lease=$lease" job.yaml --nproc-per-node 1 \
    --set launch.threads=1 --set train.steps=40
done
check "a job trains" wait_until 120 has_logged runs/tiny 0 8
first=$(hosts job 3)
check_eq "... at the address that the one that hosts was given" "127.0.0.${first#job-}" \
  "$(sed -n 's/^fsdprun: .* hosts, at \([0-9.]*\):.*/\1/p' job-?.out | uniq)"
power_off "$first"
check_ends "its leader is lost: the others end with 0" "0 0" $(for i in 1 2 3; do [ job-$i = "$first" ] || echo job-$i; done)
check_eq "... after all steps, and one take-over" "40 1" \
  "$(figures runs/tiny | cut -d' ' -f1 | uniq | wc -l) $(grep -c '"event": *"takeover"' runs/tiny/events.jsonl)"

few=(--nnodes 2 --insecure --no-python true)
check_status "a program needs a name for its run in the etcd" 2 "$BIN/fsdprun" --rdzv-endpoint "etcd://$etcd_urls" "${few[@]}"
check_status "the variable counts as the option does" 2 env PET_RDZV_ENDPOINT=etcd://a:b:c "$BIN/fsdprun" --rdzv-id a "${few[@]}"
check_match "... and is named" "PET_RDZV_ENDPOINT: the port in \"a:b:c\" is no number" "$(cat "$WORK/err")"
