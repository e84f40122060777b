# The cases of torchrun's local_elastic_agent_test.py that need several agents or several lives, against fsdprun; all of
# them on this host, over loopback. README.md says which is which, and where the others are.
source tests/support/harness.sh
FSDPRUN=${FSDPRUN:-$BIN/fsdprun}
toy=$TOY/toy
unset $(env | sed -n 's/^\(PET_[A-Z_]*\)=.*/\1/p') OMP_NUM_THREADS
at_exit() { for file in "$WORK"/*.pid; do [ -e "${file%.pid}.rc" ] || kill -TERM "$(cat "$file")"; done 2> /dev/null; :; }

# The port of the endpoint: a new one for each world, which nobody on this host listens on.
port=$(port_block)
next_port() { until port=$((port + 1)); ! ss -Hltn | grep -q ":$port "; do :; done; }
# agent NAME OPTIONS... WORKER: one of the world's agents, in the background; NAME.out, NAME.err and, when it ends, NAME.rc
agent() {
  local name=$1; shift
  rm -f "$WORK/$name.rc"
  (timeout -k 5 1200 "$FSDPRUN" --insecure --rdzv-backend c10d --rdzv-id agents --rdzv-endpoint "127.0.0.1:$port" "$@" \
    > "$WORK/$name.out" 2> "$WORK/$name.err" < /dev/null &
    echo $! > "$WORK/$name.pid"; wait $!; echo $? > "$WORK/$name.ended"; mv "$WORK/$name.ended" "$WORK/$name.rc") 2> /dev/null &
}
statuses() {
  local name
  for name in "$@"; do wait_until 150 test -e "$WORK/$name.rc"; cat "$WORK/$name.rc" 2> /dev/null || echo none; done | tr '\n' ' ' | sed 's/ $//'
}
kill_agent() { pkill -KILL -P "$(cat "$WORK/$1.pid")"; statuses "$1" > /dev/null; } # timeout's child
told() { for name in "$@"; do echo "--- $name"; tail -n 8 "$WORK/$name.err"; done >&2; }
values() { cat "$WORK"/$1.out | sed -n "s/^$2=//p" | sort -n | tr '\n' ' ' | sed 's/ $//'; }
lines_in() { [ "$(grep -c . "$1" 2> /dev/null)" -ge "$2" ]; }

# --- worlds of equal and of different agents
next_port
for i in 0 1; do agent "equal$i" --nnodes 2 --nproc-per-node 4 "$toy" env=RANK env=WORLD_SIZE; done
check_eq "two agents of four workers end well" "0 0" "$(statuses equal0 equal1)" || told equal0 equal1
check_eq "their ranks are those of one world" "0 1 2 3 4 5 6 7" "$(values 'equal?' RANK)"
check_eq "of eight" "8 8 8 8 8 8 8 8" "$(values 'equal?' WORLD_SIZE)"
next_port
for i in 1 2 3; do agent "unequal$i" --nnodes 3 --nproc-per-node "$i" "$toy" env=RANK env=WORLD_SIZE env=LOCAL_WORLD_SIZE; done
check_eq "agents of one, two and three workers end well" "0 0 0" "$(statuses unequal1 unequal2 unequal3)" || told unequal1 unequal2 unequal3
check_eq "their ranks are those of one world of six" "0 1 2 3 4 5 / 6 6 6 6 6 6" "$(values 'unequal?' RANK) / $(values 'unequal?' WORLD_SIZE)"
check_eq "each knows how many it is on its node" "1 2 2 3 3 3" "$(values 'unequal?' LOCAL_WORLD_SIZE)"

# --- roles: ranks are consecutive on a node, and so are ranks within a role
# roles TITLE ROLE:WORKERS...: an agent for each
roles() {
  local title=$1 part i=0 names=() ; shift
  next_port
  rm -f "$WORK"/node*.out
  for part in "$@"; do
    names+=("node$i")
    agent "node$i" --nnodes $# --role "${part%:*}" --nproc-per-node "${part#*:}" --no-python sh -c \
      'echo "$ROLE_NAME $ROLE_WORLD_SIZE $ROLE_RANK $WORLD_SIZE $RANK $GROUP_RANK"'
    i=$((i + 1))
  done
  check_eq "$title: seven agents in three roles end well" "0 0 0 0 0 0 0" "$(statuses "${names[@]}")" || told "${names[@]}"
  # Right is: every rank of the world once; within a role every role rank once, as many as its size says; on a node both
  # go up one by one.
  check_eq "$title: ranks within the world, a role and a node" "right" "$(cat "$WORK"/node?.out | sort -k5n | awk '
    { n++; if ($5 != NR - 1) bad = bad " rank " $5; size[$1] = $2; count[$1]++; if (seen[$1, $3]++ || $3 >= $2) bad = bad " role rank " $1 $3
      if ($6 in last && ($5 != last[$6] + 1 || $3 != role_last[$6] + 1)) bad = bad " node " $6
      last[$6] = $5; role_last[$6] = $3; world = $4 }
    END { for (r in size) if (size[r] != count[r]) bad = bad " size of " r; if (world != n) bad = bad " world"; print bad == "" ? "right" : bad }')"
}
roles "unequal nodes" master:8 trainer:1 trainer:2 trainer:3 trainer:4 ps:5 ps:2
roles "equal nodes" master:1 trainer:4 trainer:4 trainer:4 trainer:4 ps:3 ps:3

# TORCH_ELASTIC_WORKER_IDENTICAL=1 says that there is one role: its ranks are the world's, as under torchrun.
next_port
for i in 0 1; do
  TORCH_ELASTIC_WORKER_IDENTICAL=1 agent "same$i" --nnodes 2 --role "role$i" --nproc-per-node 2 --no-python \
    sh -c 'echo "RANKS=$RANK $WORLD_SIZE is $ROLE_RANK $ROLE_WORLD_SIZE"'
done
check_eq "identical workers: both agents end well" "0 0" "$(statuses same0 same1)" || told same0 same1
check_eq "identical workers: ranks in the role are those in the world" "0 4 is 0 4 1 4 is 1 4 2 4 is 2 4 3 4 is 3 4" "$(values 'same?' RANKS)"

# --- failures
rm -f "$WORK/lives"
check_status "half of four workers fail in every life: their status" 3 "$FSDPRUN" --nproc-per-node 4 --max-restarts 2 -- "$toy" \
  "touch=$WORK/lives" gen=0 "lines=4:$WORK/lives" gen=1 "lines=8:$WORK/lives" gen=2 "lines=12:$WORK/lives" rank=1 exit=3 rank=3 exit=3 hang
check_eq "the first life and two more" 12 "$(grep -c . "$WORK/lives")"
check_status "a rank that is killed once, with restarts left: 0" 0 "$FSDPRUN" --nproc-per-node 2 --max-restarts 3 -- "$toy" \
  gen=0 rank=1 signal=9 gen=0 hang env=TORCHELASTIC_RESTART_COUNT
check_eq "the second life is the last" "TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RESTART_COUNT=1" "$(tr '\n' ' ' < "$WORK/out" | sed 's/ $//')"

# A failure is not waited out: the other agent ends with it, long before any barrier or grace would be over.
next_port
for i in 0 1; do agent "fail$i" --nnodes 2 --nproc-per-node 2 --shutdown-timeout 300 "$toy" rank=0 exit=5 hang; done
began=$(date +%s)
check_eq "a failure ends all agents, with its status" "5 5" "$(statuses fail0 fail1)" || told fail0 fail1
check "and nobody waits at an exit barrier" in_good_time 60000 $((($(date +%s) - began) * 1000))

# Two nodes end at different times: the one that has done its part waits for the other, and both end well.
next_port
agent "soon" --nnodes 2 "$toy" "touch=$WORK/soon"
agent "late" --nnodes 2 "$toy" "lines=1:$WORK/soon" "wait=$WORK/go"
wait_until 60 lines_in "$WORK/soon" 1
: > "$WORK/go"
check_eq "workers that finish at different times end well" "0 0" "$(statuses soon late)" || told soon late

# --- an agent is killed
next_port
for i in 0 1; do agent "two$i" --rdzv-conf is_host=$((1 - i)) --nnodes 2 --nproc-per-node 2 --max-restarts 2 "$toy" "touch=$WORK/two" before=1 hang; done
wait_until 60 lines_in "$WORK/two" 4
kill_agent two1
agent two2 --rdzv-conf is_host=0 --nnodes 2 --nproc-per-node 2 --max-restarts 2 "$toy" "touch=$WORK/two" before=1 hang
check_eq "an agent is killed and another takes its place: both end well" "0 0" "$(statuses two0 two2)" || told two0 two2
check_eq "in a second life of all four ranks" 8 "$(grep -c . "$WORK/two")"
next_port
for i in 0 1; do agent "one$i" --nnodes 1:2 --nproc-per-node 2 --max-restarts 2 --rdzv-conf is_host=$((1 - i)),last_call_timeout=5 --no-python sh -c 'echo x >> "$0"; [ "$WORLD_SIZE" = 2 ] || exec sleep 1000; echo WORLD_SIZE=2' "$WORK/one"; done
wait_until 60 lines_in "$WORK/one" 4
kill_agent one1
check_eq "an agent is killed and nobody takes its place: with 1:2 the other ends well" 0 "$(statuses one0)" || told one0
check_eq "as a world of its own two" "2 2" "$(values one0 WORLD_SIZE)"

# --- what workers are told
env_of() { "$FSDPRUN" "$@" 2> /dev/null < /dev/null; }
check_eq "TORCH_NCCL_ASYNC_ERROR_HANDLING of the parent stays" TORCH_NCCL_ASYNC_ERROR_HANDLING=0 \
  "$(TORCH_NCCL_ASYNC_ERROR_HANDLING=0 env_of "$toy" env=TORCH_NCCL_ASYNC_ERROR_HANDLING)"
check_eq "TORCH_NCCL_ASYNC_ERROR_HANDLING is 1 otherwise" TORCH_NCCL_ASYNC_ERROR_HANDLING=1 \
  "$(unset TORCH_NCCL_ASYNC_ERROR_HANDLING; env_of "$toy" env=TORCH_NCCL_ASYNC_ERROR_HANDLING)"
check_eq "TORCHELASTIC_HEALTH_CHECK_PORT of the parent is seen" TORCHELASTIC_HEALTH_CHECK_PORT=12345 \
  "$(TORCHELASTIC_HEALTH_CHECK_PORT=12345 env_of "$toy" env=TORCHELASTIC_HEALTH_CHECK_PORT)"
TORCHELASTIC_HEALTH_CHECK_PORT=12345 "$FSDPRUN" "$toy" exit=0 2> "$WORK/err"
check_eq "as PyTorch's own build says, in one line, no server is started" \
  "fsdprun: no health check server is started at TORCHELASTIC_HEALTH_CHECK_PORT=12345" "$(cat "$WORK/err")"
check_eq "a word that is no port is passed over" "" "$(TORCHELASTIC_HEALTH_CHECK_PORT=none "$FSDPRUN" "$toy" exit=0 2>&1)"
check_eq "and is not there otherwise" "TORCHELASTIC_HEALTH_CHECK_PORT unset" \
  "$(unset TORCHELASTIC_HEALTH_CHECK_PORT; env_of "$toy" env=TORCHELASTIC_HEALTH_CHECK_PORT)"
check_eq "a prefix of role, local rank and rank" "[sum-0:0]:hello [sum-1:1]:hello" \
  "$(TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[${role_name}-${local_rank}:${rank}]:' env_of --role sum --tee 3 --nproc-per-node 2 "$toy" say=hello | sort | tr '\n' ' ' | sed 's/ $//')"
[ "$n_failed" = 0 ]
