# The nccl back end, over a library with NCCL's API between processes (tests/emulation/cuda/nccl) and the
# emulated device: what it calls, in which order and with which sizes; calls that are in progress; errors that
# come later. A rank that dies: test_nccl_faults.sh and test_cuda_killed.sh.
# Nightly: cuda
. tests/support/shell/harness.sh
export FSDP_DEVICE=cuda FSDP_COLLECTIVES=nccl
export FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so
. tests/support/shell/cuda_emulated.sh
sed -i 's/steps: 4/steps: 3/; s/every: 2/every: 1/' job.yaml
# train NAME RANKS OPTIONS...: a GPU for each rank, a place for the library's files, a log of its calls
train() {
  local name=$1 n=$2; shift 2
  mkdir -p "$name"
  FSDP_EMULATED_DEVICES=$n NCCL_STANDIN_DIR=$WORK/$name NCCL_STANDIN_LOG=$WORK/$name/calls timeout 2400 \
    "$BIN/fsdprun" --nproc-per-node "$n" --log-dir "$WORK/$name" "$@" job.yaml > "$WORK/$name.out" 2>&1
}
calls() { grep -c "^$2" "$WORK/$1/calls.$3"; }
staged() { FSDP_COLLECTIVES=cpu train "$@"; }

check "by way of the host, 2 ranks" staged host2 2
check "by nccl, 2 ranks" train nccl2 2
check_eq "the same bits: sums of two have one order" "$(losses host2)" "$(losses nccl2)"
check_eq "all ranks call the same, in one order" "$(cut -d' ' -f1-9 nccl2/calls.0 | grep '#')" "$(cut -d' ' -f1-9 nccl2/calls.1 | grep '#')"
check_eq "one gather a unit and pass but the root's second: 5 a step" 15 "$(calls nccl2 AllGather 0)"
check_eq "one reduction a unit: 3 a step, means" 9 "$(grep -c '^ReduceScatter .* op 4 ' nccl2/calls.0)"
check_eq "finished in good order" "CommFinalize CommDestroy" "$(tail -n 2 nccl2/calls.0 | xargs)"
FSDP_EMULATED_ORDER=11 train seeded4 4; FSDP_EMULATED_ORDER=early train early4 4
check_eq "do not change a bit" "$(losses seeded4)" "$(losses early4)"
check_match "of something" '^3 ' "$(losses early4 | tail -n 1)"
NCCL_STANDIN_LAZY=1 train lazy 2
check_eq "calls that answer that they are in progress" "$(losses nccl2)" "$(losses lazy)"
# Three answers "in progress" for each call, and a thread that is woken late by the machine may count as one
# that waited: hence one in ten.
check "a call that is in progress is asked for again at once, without a sleep" awk \
  '/^asked/ { asked += $2; waited += $4 } END { exit !(asked >= 30 && waited * 10 <= asked) }' lazy/calls.0
check "a communicator for each dimension of a mesh" train mesh 4 --set parallel.replicate=2
check_match "replicas all-reduce, over a group of their own" 'CommInitRankConfig . of 2' "$(cat mesh/calls.0)"
check_match "sums of what was averaged, or means" '^AllReduce ' "$(cat mesh/calls.0)"
check "in bfloat16" train bf16 2 --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=bfloat16
check_match "gathered as such" '^AllGather #1 n [0-9]+ type 9 .*in place' "$(cat bf16/calls.0)"

# Ranks compare each call before they queue it, in the first step of a plan that all of them have, and in no
# other.
mkdir bin; cp "$BIN/fsdprun" bin/; cp "$TOY/fsdp_train_compared" bin/fsdp-train
compared() { # NAME OPTIONS...: all-gathers that compare calls
  local name=$1; shift
  BIN=$WORK/bin FSDP_TEST_COMPARED=$WORK/$name.compared train "$name" 2 "$@"
  grep -c . "$name.compared"
}
check_eq "a step of a plan compares each call: 5 gathers, 3 reductions" 8 "$(compared one-step --set train.steps=1)"
check_eq "a run of three steps compares those of the first" 8 "$(compared three-steps)"
check_eq "and is the same" "$(losses nccl2)" "$(losses three-steps)"
check_eq "a step of micro-steps compares those of all of them: 5 gathers in each, 3 reductions in the last" \
  13 "$(compared micro-steps --set train.global_batch=8)"
# Rank 1 plans its second step otherwise: ranks compare it, and the next one, which both have never compared
# as it now is; then no more.
check_eq "a step in which one rank has another plan is compared, and the first one after it" 24 \
  "$(FSDP_TEST_LONE=replan compared lone-replan --set train.steps=5)"
check_eq "and each rank did its five steps" 5 "$(losses lone-replan | wc -l)"
# What a function of the user's calls is not in the plan. Ranks that had compared different calls would wait
# for each other for good.
check_eq "a rank that alone has a function of its own is compared in every step" 24 "$(FSDP_TEST_LONE=function compared lone-function)"
check_eq "which changes no bit" "$(losses nccl2)" "$(losses lone-function)"
# differ RANK-1-SETTING=VALUE: rank 1 has another job
differ() {
  sed "s/\"name\": \"run\"/\"name\": \"differ\"/; s|\"dir\": \"[^\"]*\"|\"dir\": \"$WORK/own\"|" nccl2/run/job.json > differ.0.json
  sed "$1" differ.0.json > differ.1.json
  if cmp -s differ.0.json differ.1.json; then echo "they do not differ"; return; fi
  mkdir -p differ
  FSDP_EMULATED_DEVICES=2 NCCL_STANDIN_DIR=$WORK/differ timeout 2400 "$BIN/fsdprun" --nproc-per-node 2 --max-restarts 0 --log-dir "$WORK/differ" \
    --no-python bash -c 'exec "$1/fsdp-train" "$2/differ.$RANK.json"' - "$BIN" "$WORK" 2>&1
}
call='reduce_scatter #[0-9]+ \(mean\) of [0-9]+ bytes of' # either rank may be the one that sees it first
here="rank 0 is at $call float32, rank 1 at $call bfloat16" there="rank 1 is at $call bfloat16, rank 0 at $call float32"
check_match "a rank that calls another collective in the first step is told of with both calls" \
  "ranks do not call the same collective: ($here|$there)" \
  "$(differ 's/"reduce_dtype": *"float32"/"reduce_dtype": "bfloat16"/')"

# How gradients are divided is PyTorch's choice, and what NCCL is asked for too: its mean; a sum of products
# with an operation of our own, made, used once and destroyed; or a plain sum, divided afterwards. The bits
# are those of the way through the host.
ops() { sed -n "s/^$2 .* op \([0-9]*\) factor \([^ ]*\) .*/\1 \2/p" "$1/calls.0" | sort | uniq -c | xargs; }
own_ops() { grep -c '^RedOpCreate' "$1/calls.0"; }
divided() { # NAME RANKS REDUCES ALL-REDUCES OWN-OPERATIONS OPTIONS...
  local name=$1 n=$2 reduces=$3 alls=$4 own=$5; shift 5
  staged "host-$name" "$n" "$@"
  check "divided, $name" train "$name" "$n" "$@"
  check_eq "divided, $name: the bits of the other way" "$(losses "host-$name")" "$(losses "$name")"
  check_eq "divided, $name: reductions as (count, operation, factor)" "$reduces" "$(ops "$name" ReduceScatter)"
  check_eq "divided, $name: over the replicas" "$alls" "$(ops "$name" AllReduce)"
  check_eq "divided, $name: operations of our own" "$own" "$(own_ops "$name")"
  check_eq "divided, $name: nothing of the library's is left" "" "$(grep -h '^left' "$name"/calls.*)"
}
divided mean 2 "9 4 1" "" 0
divided by-the-ranks 2 "9 4 1" "" 0 --set parallel.gradient_divide_factor=2
divided by-three 2 "9 0 0.333333" "" 9 --set parallel.gradient_divide_factor=3
divided summed 2 "9 0 1" "" 0 --set parallel.force_sum_reduction=true
divided summed-by-three 2 "9 0 1" "" 0 --set parallel.force_sum_reduction=true --set parallel.gradient_divide_factor=3
# (Lines of both groups' first ranks: a rank is what it is in its group.)
divided replicas 4 "18 4 1" "18 4 1" 0 --set parallel.replicate=2
divided replicas-by-three 4 "18 0 0.333333" "18 0 1" 18 --set parallel.replicate=2 --set parallel.gradient_divide_factor=3
divided replicas-summed 4 "18 0 1" "18 0 1" 0 --set parallel.replicate=2 --set parallel.force_sum_reduction=true
divided bf16-by-four 2 "9 0 0.25" "" 9 --set parallel.gradient_divide_factor=4 --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=bfloat16
check_eq "each such operation is made, used and destroyed before the next" "9 9 9" "$(grep -E '^(RedOp|ReduceScatter)' by-three/calls.0 |
  awk '/^RedOpCreate/ { made += last == "" || last == "destroyed"; last = "made" } /^ReduceScatter/ { used += last == "made"; last = "used" }
    /^RedOpDestroy/ { destroyed += last == "used"; last = "destroyed" } END { print made, used, destroyed }')"

# A communicator of its own for reductions, so that they need not wait behind gathers.
check "a second communicator" train separate 2 --set parallel.separate_reduce_scatter_group=true
check_eq "gathers on one, reductions on the other" "AllGather comm 0, ReduceScatter comm 1" \
  "$(sed -n 's/^\([A-Za-z]*\) #.* \(comm [0-9]*\).*/\1 \2/p' separate/calls.0 | sort -u | paste -sd, | sed 's/,/, /')"
check_eq "both are finished in good order" 2 "$(calls separate CommDestroy 1)"
check_eq "and the run is the same" "$(losses nccl2)" "$(losses separate)"

# What collectives move comes from the library's allocator, and each communicator that moves it knows it:
# once, before, and no longer than it lives.
check_eq "parameters, and arena and gradients in one piece, are registered, of its own memory" 2 "$(calls nccl2 'CommRegister [0-9]* bytes of its own' 0)"
check_match "before the first gather uses them" '^CommRegister' "$(grep -E '^(CommRegister|AllGather)' nccl2/calls.0 | head -n 1)"
check_eq "and taken back" 2 "$(calls nccl2 CommDeregister 0)"
check_eq "of two communicators each what it moves: gathers the parameters, both arena and gradients" 3 "$(calls separate CommRegister 0)"
check_eq "and taken back from both" "3, left: 0" "$(calls separate CommDeregister 0), left: $(calls separate left 0)"
without() { # NAME WHY
  check "$2" train "$1" 2
  check_eq "$2: nothing is registered" 0 "$(calls "$1" CommRegister 0)"
  check_eq "$2: the run is the same" "$(losses nccl2)" "$(losses "$1")"
}
FSDP_NCCL_REGISTER=0 without unregistered "registration switched off"
NCCL_STANDIN_SMALL=1 without refused-memory "a library that refuses memory and registration"
FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin_old.so without old "a library from before there was either"

# The library's own variables reach it as they are, and none is added.
NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME='=eth0,lo' NCCL_ODD=' a  "b"\c ' train variables 2
check_eq "NCCL_* reach the library untouched, and no others" "$(printf '%s\n' 'environment NCCL_DEBUG=WARN' 'environment NCCL_ODD= a  "b"\c ' \
  'environment NCCL_SOCKET_IFNAME==eth0,lo')" "$(grep -h '^environment' variables/calls.1 | sort)"

# An error that a later call reports: words with the call, group, rank and device, and the communicator is
# given up.
NCCL_STANDIN_FAIL=1:9 train late-error 2
check_match "a late error is told" 'group world: remote process exited.*as it was told to.*nccl\.c:[0-9]+, rank 1 of 2, device 1 \(emulated\)' "$(cat late-error.out)"
check_eq "and its communicator aborted" 1 "$(calls late-error CommAbort 1)"
check_eq "nothing was finalized" 0 "$(calls late-error CommFinalize 1)"

FSDP_NCCL_LIBRARY=/nowhere/libnccl.so train missing 2
check_match "a library that is not there" 'collectives nccl: /nowhere/libnccl.so' "$(cat missing.out)"
FSDP_NCCL_LIBRARY=libm.so.6 train wrong 2
check_match "one that is not NCCL" 'libm.so.6 has no nccl' "$(cat wrong.out)"
