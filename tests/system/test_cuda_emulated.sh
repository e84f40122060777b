# Training on "cuda" without a GPU: the plug-in's own sources over an emulated device, whose memory the host
# cannot touch and whose streams run late, early or in a seeded order. Ranks share a device, their collectives
# go by way of host memory. The run must be the cpu's, up to the rounding of sums that another order makes.
# Nightly: cuda
. tests/support/shell/harness.sh
. tests/support/shell/cuda_emulated.sh
# Every operation against the reference: these lines are the program's own.
for order in late early 9; do
  mkdir -p "nccl-$order"
  FSDP_EMULATED_ORDER=$order FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so NCCL_STANDIN_DIR=$WORK/nccl-$order NCCL_STANDIN_LOG=$WORK/nccl-$order/calls \
    "$TOY/cuda_numerics" > numerics.out 2>&1 || n_failed=$((n_failed + 1))
  check_eq "a group of one: what it asks of the library, $order" \
    "AllGather 4, AllReduce 6, Broadcast 2, CommDeregister 2, CommDestroy 1, CommFinalize 1, CommRegister 2, RedOpCreatePreMulSum 2, RedOpDestroy 2, ReduceScatter 6" \
    "$(cut -d' ' -f1 "nccl-$order"/calls.0 | grep -E '^(All|Reduce|RedOp|Broadcast|CommRegister|CommDeregister|CommFinalize|CommDestroy)' |
      sort | uniq -c | awk '{ print $2, $1 }' | paste -sd, | sed 's/,/, /g')"
  grep -E '^(ok|not ok|skip) ' numerics.out || not_ok "the cuda row of numerics, $order" "$(tail -n 5 numerics.out)"
done
FSDP_NCCL_LIBRARY=/nowhere/libnccl.so "$TOY/cuda_numerics" > numerics.out 2>&1; check_eq "without NCCL the rest is tested" 0 $?
check_match "and what is not is told" '^skip - cuda row: collectives of a group of one: .*/nowhere/libnccl.so' "$(cat numerics.out)"
for n in 1 2 4; do
  check "cpu, $n ranks" train "cpu$n" cpu "$n"
  for order in late early 5; do
    export FSDP_EMULATED_ORDER=$order
    check "cuda, $n ranks, $order" train "cuda$n-$order" cuda "$n"
    check_match "and it was" 'a step, cuda emulated' "$(cat "cuda$n-$order.out")"
    same "the losses and norms are the cpu's" "cpu$n" "cuda$n-$order"
  done
done
unset FSDP_EMULATED_ORDER

# Whatever keys of sharding a job has, and in bfloat16: the same on both.
like "kept after forward" 1e-5 keep --set parallel.reshard_after_forward=false
like "accumulation" 1e-5 accumulate --set train.grad_accumulation=3
like "recomputing" 1e-5 recompute --set parallel.activation_checkpoint=full
like "dropout" 1e-5 dropout --set model.dropout=0.2
like "momentum" 1e-5 momentum --set optimizer.kind=sgd --set optimizer.momentum=0.9
like "replicas" 1e-5 replicas --set parallel.replicate=2
like "tensor parallel" 1e-5 tp --set parallel.tensor=2
like "tied" 1e-5 tied --set model.tied=true
like "selective" 1e-5 sel --set parallel.activation_checkpoint=selective
like "RMSNorm" 1e-5 rms --set model.norm=rmsnorm
like "RMSNorm, dropout, recomputing" 1e-5 rms-dropout --set model.norm=rmsnorm --set model.dropout=0.2 --set parallel.activation_checkpoint=full
like "RMSNorm, bfloat16" 1e-2 rms-bf16 --set model.norm=rmsnorm --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=float32
like "bfloat16" 1e-2 bf16 --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=float32
like "bfloat16, rounded stochastically" 1e-2 drawn --set parallel.param_dtype=bfloat16 --set \
  parallel.reduce_dtype=float32 --set parallel.stochastic_rounding=true

# Gathers in float8: the codes of the first step are the cpu's, bit for bit. Later a weight whose last bits
# differ may take the next code, a sixteenth of it off. A world of one has the codes of a world of two.
export FSDP_EMULATED_CAPABILITY=89
like "float8" 2e-2 float8 --set parallel.float8_gather=true
like "float8 to bfloat16, slices" 2e-2 float8-bf16 --set parallel.float8_gather=true --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=float32
first() { losses "$1" | head -n 1; }
near() { # TITLE A B: of the first step, as `same`
  check_eq "$1" "near" "$(paste <(first "$2") <(first "$3") | awk 'function far(a, b) { return a - b > 1e-5 * b || b - a > 1e-5 * b } { print far($2, $5) || far($3, $6) ? "far: " $0 : "near" }')"
}
near "float8: the first step is the cpu's" cpu-float8 cuda-float8
check "float8 of one rank" train float8-1 cuda 1 --set parallel.float8_gather=true --set train.batch=4
near "float8 of one rank: the first step is that of two" cuda-float8 float8-1
unset FSDP_EMULATED_CAPABILITY
train float8-old cuda 1 --set parallel.float8_gather=true
check_match "float8 on an older GPU is refused" 'in float8: device 0 \(emulated\) has compute capability 8.0: float8 needs at least 8.9' "$(cat float8-old.out)"

# A checkpoint is a checkpoint: from one device to the other, at another world size.
go_on() { # FROM TO RANKS DEVICE
  mkdir -p "$2" && cp -r "$1/run" "$2/" && train "$2" "$4" "$3" --set train.steps=6
}
cp -r cuda2-late cuda-first; cp -r cpu2 cpu-first
check "a checkpoint of cuda goes on on the cpu" go_on cuda-first cuda-to-cpu 4 cpu
check "one of the cpu on cuda" go_on cpu-first cpu-to-cuda 4 cuda
check_match "from its last step" 'step 5/6' "$(cat cpu-to-cuda.out)"
same "the two end alike" cuda-to-cpu cpu-to-cuda
check "text from a checkpoint of cuda" env FSDP_DEVICE=cuda "$BIN/fsdp-train" --sample cuda2-late/run --tokens 8

# Memory that is not there is told in words.
FSDP_EMULATED_MEMORY=200000 train nomem cuda 1
check_match "out of memory, with the call, rank and device" 'cudaMalloc.*out of memory.*memory.c:[0-9]+, rank 0, device 0 \(emulated\)' "$(cat nomem.out)"
# Ranks that share a GPU are NCCL's to refuse, and ours to say.
COLLECTIVES=nccl train shared cuda 2
check_match "nccl on a shared GPU is refused" 'share a GPU.*take cpu' "$(cat shared.out)"
on_one_gpu() {
  FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so NCCL_STANDIN_DIR=$WORK NCCL_STANDIN_LOG=$WORK/$1.calls COLLECTIVES=nccl train "$1" cuda 2
}
NCCL_MULTI_RANK_GPU_ENABLE=1 on_one_gpu told
check_match "unless NCCL is told that ranks may share one" '^CommInitRankConfig 0 of 2' "$(cat told.calls.0)"
same "and the run is the same" told cuda2-late
