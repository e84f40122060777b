# The environment of every worker: each variable of torchrun's at 1 and 4 workers, on two nodes, in
# generations 0 and 1, against the value it must have; and compared with the real torchrun, from which it may differ
# only as documented.
# torch: launcher/test_run.py (environment, sentinel), agent/server/test/local_elastic_agent_test.py (env,
# ranks).
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
toy=$TOY/toy
export TMPDIR=$WORK
port=$(port_block)
cd "$WORK" || exit 1
unset OMP_NUM_THREADS TORCH_NCCL_ASYNC_ERROR_HANDLING CUDA_VISIBLE_DEVICES TORCHELASTIC_ENABLE_FILE_TIMER TORCHELASTIC_TIMER_FILE
unset TORCHELASTIC_ERROR_FILE
export SENTINEL="of the parent, with spaces" RANK=77 WORLD_SIZE=88 TORCHELASTIC_RESTART_COUNT=99 FSDP_RUN_DIR=/nowhere FSDP_LINK_FD=1
cpus=$(nproc)

# Every worker prints its environment; in generation 0 rank 0 then fails once all have.
twice() { echo env "touch=$WORK/$1.seen" gen=0 "lines=$2:$WORK/$1.seen" gen=0 rank=0 exit=3 gen=0 hang; }
# worker DIR GENERATION LOCAL_RANK: the file of what it printed
worker() { echo "$1"/*/attempt_"$2"/"$3"/stdout.log; }
# value FILE NAME: as NAME=value stands there, or "unset"
value() {
  grep -m 1 "^$2=" "$1" 2> /dev/null | cut -d= -f2- | grep . || { grep -q "^$2=" "$1" && echo empty || echo unset
  }
}

# compare TITLE FILE NAME=WANT...: one check, all of a worker's variables
compare() {
  local title=$1 file=$2 wrong= pair got; shift 2
  for pair in "$@"; do
    got=$(value "$file" "${pair%%=*}")
    [ "$got" = "${pair#*=}" ] || wrong="$wrong ${pair%%=*}: want ${pair#*=}, got $got;"
  done
  if [ -z "$wrong" ]; then ok "$title"; else not_ok "$title" "$wrong" "$(tail -n 5 "$file" 2>&1)"; fi
}
# expected RANK WORLD LOCAL LOCAL_WORLD NODE NODES GENERATION RUN_ID
expected() {
  local threads=$((cpus / $4)); [ "$threads" -ge 1 ] || threads=1
  printf '%s\n' "RANK=$1" "WORLD_SIZE=$2" "LOCAL_RANK=$3" "LOCAL_WORLD_SIZE=$4" "GROUP_RANK=$5" "GROUP_WORLD_SIZE=$6" \
    ROLE_NAME=crew "ROLE_RANK=$1" "ROLE_WORLD_SIZE=$2" MASTER_ADDR=127.0.0.1 "TORCHELASTIC_RUN_ID=$8" \
    "TORCHELASTIC_RESTART_COUNT=$7" TORCHELASTIC_MAX_RESTARTS=2 TORCHELASTIC_USE_AGENT_STORE=True \
    TORCH_NCCL_ASYNC_ERROR_HANDLING=1 "OMP_NUM_THREADS=$threads" CUDA_VISIBLE_DEVICES=unset TORCHELASTIC_TIMER_FILE=unset \
    TORCHELASTIC_HEALTH_CHECK_PORT=unset \
    TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT "SENTINEL=of the parent, with spaces"
}
# table DIR WORLD LOCAL_WORLD NODE NODES RUN_ID: all workers of a node in both generations
table() {
  local dir=$1 world=$2 local_world=$3 node=$4 nodes=$5 id=$6 gen rank file run
  run=$(echo "$WORK/$dir"/*)
  for gen in 0 1; do
    for rank in $(seq 0 $((local_world - 1))); do
      file=$(worker "$WORK/$dir" "$gen" "$rank")
      mapfile -t pairs < <(expected $((node * local_world + rank)) "$world" "$rank" "$local_world" "$node" "$nodes" "$gen" "$id")
      compare "$nodes x $local_world workers, generation $gen, node $node, local rank $rank" "$file" "${pairs[@]}" \
        "TORCHELASTIC_ERROR_FILE=$run/attempt_$gen/$rank/error.json" "FSDP_RUN_DIR=$run"
      check_match "its port and its link are numbers of its own" '^[1-9][0-9]* [1-9][0-9]*$' "$(value "$file" MASTER_PORT) $(value "$file" FSDP_LINK_FD)"
    done
  done
}
ports() { cat "$WORK"/$1*/*/attempt_"$2"/*/stdout.log | grep '^MASTER_PORT=' | sort -u; }

for n in 1 4; do
  check_status "$n workers, restarted once: 0" 0 timeout 1200 "$FSDPRUN" --role crew --rdzv-id "job$n" --nproc-per-node $n --max-restarts 2 \
    --log-dir "$WORK/n$n" -r 3 -- "$toy" $(twice n$n $n)
  table n$n $n $n 0 1 "job$n"
  check_eq "one port a generation for all $n" "1 1" "$(ports n$n 0 | wc -l) $(ports n$n 1 | wc -l)"
  [ "$(ports n$n 0)" != "$(ports n$n 1)" ] && ok "and a new one in the next" || not_ok "and a new one in the next" "$(ports n$n 0)"
done

# Two nodes: two launchers that meet on loopback.
for node in 0 1; do
  begin pair$node timeout 1200 "$FSDPRUN" --role crew --nnodes 2 --node-rank $node \
    --rdzv-endpoint "127.0.0.1:$port" --insecure --nproc-per-node 2 --max-restarts 2 --rdzv-id pair \
    --log-dir "$WORK/pair$node" -r 3 -- "$toy" $(twice pair 4)
done
check_ends "two nodes, restarted once: both end with 0" "0 0" pair0 pair1
table pair0 4 2 0 2 pair
table pair1 4 2 1 2 pair
check_eq "one port a generation on both nodes" "1 1" "$(ports pair 0 | wc -l) $(ports pair 1 | wc -l)"

# What the parent says about threads and NCCL stays; a link or run directory of a launcher around us does not.
OMP_NUM_THREADS=5 TORCH_NCCL_ASYNC_ERROR_HANDLING=3 "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/kept" -r 3 -- "$toy" env
compare "the parent's word stays" "$(worker "$WORK/kept" 0 1)" OMP_NUM_THREADS=5 TORCH_NCCL_ASYNC_ERROR_HANDLING=3
export TORCHELASTIC_HEALTH_CHECK_PORT=12345
check_eq "TORCHELASTIC_HEALTH_CHECK_PORT of the parent is seen" TORCHELASTIC_HEALTH_CHECK_PORT=12345 \
  "$("$FSDPRUN" -- "$toy" env=TORCHELASTIC_HEALTH_CHECK_PORT 2> health.err)"
check_eq "as PyTorch's own build says, in one line, no server is started" \
  "fsdprun: no health check server is started at TORCHELASTIC_HEALTH_CHECK_PORT=12345" "$(cat health.err)"
export TORCHELASTIC_HEALTH_CHECK_PORT=none
check_eq "a word that is no port is passed over" "" "$("$FSDPRUN" "$toy" exit=0 2>&1)"
unset TORCHELASTIC_HEALTH_CHECK_PORT
"$FSDPRUN" --signals-to-handle SIGTERM,SIGUSR2 --log-dir "$WORK/signals" -r 3 -- "$toy" env
compare "signals are named as they were given" "$(worker "$WORK/signals" 0 0)" TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGUSR2
# Rank 0 opens the store itself where PyTorch's own word says so, and nothing static is asked for.
for flags in "" --standalone "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400"; do
  rm -rf alone; TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "$FSDPRUN" $flags --log-dir "$WORK/alone" -r 3 -- "$toy" env
  compare "without a store of ours${flags:+: $flags}" "$(worker "$WORK/alone" 0 0)" TORCHELASTIC_USE_AGENT_STORE=False
  check_match "and a port for one" '^[1-9][0-9]*$' "$(value "$(worker "$WORK/alone" 0 0)" MASTER_PORT)"
done
# One node need not meet anybody: two runs may name one endpoint at a time.
for run in a b; do
  begin $run timeout 600 "$FSDPRUN" --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" --rdzv-id $run \
    --no-python sh -c ': > '$run'.there; until [ -e a.there ] && [ -e b.there ]; do sleep 0.02; done'
done
check_ends "two runs of one node at one c10d endpoint: both end with 0" "0 0" a b
"$FSDPRUN" --log-dir /dev/null -- "$toy" env > bare.log
compare "without a log directory there is no error file, and its name is empty" bare.log TORCHELASTIC_ERROR_FILE=empty
if [ "$cpus" -gt 1 ]; then
  first=$(taskset -pc $$ | sed 's/.*: *//; s/[-,].*//')
  taskset -c "$first" "$FSDPRUN" --log-dir "$WORK/one" -r 3 -- "$toy" env
  compare "threads are of the CPUs that may be used" "$(worker "$WORK/one" 0 0)" OMP_NUM_THREADS=1
  "$FSDPRUN" --log-dir "$WORK/all" -r 3 -- "$toy" env
  compare "all of them for one worker" "$(worker "$WORK/all" 0 0)" "OMP_NUM_THREADS=$cpus"
else
  skip "threads of the CPUs that may be used" "one CPU"
fi

# A run id is made up where torchrun does: with --standalone, and on one node that is named no place to meet
# at. It is a UUID, the same for all workers and generations. PyTorch's own is asked too, where it is there.
uuid='^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
ids_of() {
  rm -rf ids
  "$@" --log-dir "$WORK/ids" -r 3 --no-python "$toy" env > ids.out 2>&1
  cat ids/*/attempt_*/*/stdout.log | sed -n 's/^TORCHELASTIC_RUN_ID=//p' | sort -u
}
for flags in "" --standalone "--rdzv-backend static --nnodes 1:1" "--nproc-per-node 2 --node-rank 0 --master-addr 127.0.0.1"; do
  check_match "a UUID${flags:+: $flags}" "$uuid" "$(ids_of "$FSDPRUN" $flags)"
done
for flags in "--master-port $port" "--rdzv-endpoint 127.0.0.1:$port" "--rdzv-backend c10d" \
  "--nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=1 --insecure"; do
  check_eq "none: $flags" none "$(ids_of "$FSDPRUN" $flags)"
done
check_eq "a given one is kept with --standalone" mine "$(ids_of "$FSDPRUN" --standalone --rdzv-id mine)"
"$FSDPRUN" --nproc-per-node 2 --max-restarts 1 --log-dir "$WORK/lives" -r 3 -- "$toy" env \
  "touch=$WORK/lives.seen" gen=0 "lines=2:$WORK/lives.seen" gen=0 rank=0 exit=3 gen=0 hang 2> lives.err
check_eq "one UUID in both generations, which the folder is named after" "4 1" \
  "$(cat lives/"$(sed -n 's/^TORCHELASTIC_RUN_ID=//p' lives/*/attempt_1/0/stdout.log)"_*/attempt_?/?/stdout.log | grep '^TORCHELASTIC_RUN_ID=' | sort | uniq -c | awk '{ print $1, NR }')"
[ "$(ids_of "$FSDPRUN")" != "$(ids_of "$FSDPRUN")" ] && ok "each run has its own" || not_ok "each run has its own"

# One device for each.
CUDA_VISIBLE_DEVICES=4,GPU-5a,6 "$FSDPRUN" --nproc-per-node 2 --virtual-local-rank --log-dir "$WORK/virtual" -r 3 -- "$toy" env
for rank in 0 1; do
  compare "virtual local rank $rank" "$(worker "$WORK/virtual" 0 $rank)" LOCAL_RANK=0 "RANK=$rank" LOCAL_WORLD_SIZE=2 \
    "CUDA_VISIBLE_DEVICES=$([ $rank = 0 ] && echo 4 || echo GPU-5a)"
done
PET_VIRTUAL_LOCAL_RANK=1 "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/numbers" -r 3 -- "$toy" env
compare "without a list the device is the local rank" "$(worker "$WORK/numbers" 0 1)" LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=1

# Compared with torchrun.
python=${FSDP_TEST_PYTHON:-}
if [ -z "$python" ]; then
  skip "the same environment as torchrun's" "FSDP_TEST_PYTHON does not name a Python with PyTorch"
else
  # Ours alone: FSDP_* and FSDPRUN_SNAPSHOT_DIR. By design another value: what is below the run directory, and the threads, which are
  # the cores divided by the workers; the shell's "_" is the launcher. Where no rendezvous is named torchrun
  # makes up a run id, as ours does, and an address (it is --standalone then); ours is 127.0.0.1.
  differs='FSDP_RUN_DIR|FSDP_LINK_FD|FSDPRUN_SNAPSHOT_DIR|TORCHELASTIC_ERROR_FILE|OMP_NUM_THREADS|_'
  unset FSDP_RUN_DIR FSDP_LINK_FD
  export LC_ALL=C.UTF-8 # in the C locale Python sets LC_CTYPE for itself and its children (PEP 538)
  for flags in "" "--rdzv-backend static --master-port $((port + 1)) --virtual-local-rank" \
    "--rdzv-backend static --master-port $((port + 2)) --role x --rdzv-id y --max-restarts 1 --signals-to-handle SIGINT"; do
    if [ -z "$flags" ] && ! getent hosts localhost > /dev/null; then
      skip "as torchrun's, without flags" "torchrun looks localhost up then, which has no address here"
      continue
    fi
    rm -rf theirs ours
    timeout 2000 "$python" -m torch.distributed.run --nproc-per-node 2 $flags --log-dir "$WORK/theirs" -r 3 --no-python "$toy" env > theirs.out 2>&1
    timeout 600 "$FSDPRUN" --nproc-per-node 2 $flags --log-dir "$WORK/ours" -r 3 --no-python "$toy" env > ours.out 2>&1
    skipped="^($differs${flags:+)=}"; [ -n "$flags" ] || skipped="^($differs|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_RUN_ID)="
    for side in theirs ours; do
      [ -n "$flags" ] || check_match "$side has a UUID for a run id" "$uuid" "$(value "$(worker "$WORK/$side" 0 0)" TORCHELASTIC_RUN_ID)"
    done
    for rank in 0 1; do
      for side in theirs ours; do
        grep -vE "$skipped" "$(worker "$WORK/$side" 0 $rank)" | sort > $side.env
        grep -E "$skipped" "$(worker "$WORK/$side" 0 $rank)" | cut -d= -f1 | grep -vE '^(FSDP_|FSDPRUN_|_$)' | sort > $side.names
      done
      if diff theirs.env ours.env > differences; then ok "as torchrun's, rank $rank${flags:+, $flags}"; else
        not_ok "as torchrun's, rank $rank${flags:+, $flags}" "$(tr '\n' ' ' < differences)"; fi
      check "and those that may differ are set by both" cmp theirs.names ours.names
    done
  done
fi
