# Training on "cuda" without a GPU: the plug-in's own sources over an emulated device, whose memory the host cannot touch and
# whose streams run late, early or in a seeded order. Ranks share a device, their collectives go by way of host memory. The run must be the
# cpu's, up to the rounding of sums that another order makes.
. tests/support/harness.sh
export FSDP_CUDA_PLUGIN=$BUILD/test/emulated/libfsdp_cuda.so FSDP_CUDA_DRIVER=libc.so.6
cd "$WORK" || exit 1
cat > job.yaml <<JOB
run: {name: run, seed: 7, log_every: 1}
data: {path: $SOURCE/tests/parity/excerpt.txt, tokenizer: byte}
model: {kind: transformer, layers: 2, dim: 32, heads: 2, vocab: 256, seq: 16, dropout: 0.0, causal: true}
train: {steps: 4, batch: 2, clip_norm: 1.0}
checkpoint: {every: 2}
launch: {max_restarts: 0}
JOB
# train NAME DEVICE RANKS OPTIONS...: a run of its own
train() {
  local name=$1 device=$2 n=$3; shift 3
  FSDP_DEVICE=$device FSDP_COLLECTIVES=${COLLECTIVES:-cpu} timeout 240 "$BIN/fsdprun" --nproc-per-node "$n" --log-dir "$WORK/$name" "$@" job.yaml > "$WORK/$name.out" 2>&1
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([0-9.]*\), "grad_norm": \([0-9.]*\),.*/\1 \2 \3/p' "$WORK/$1/run/metrics.jsonl"; }
# Products sum in float32 over k, at most 128 terms here: 128 * 6e-8 at worst, 1e-5 with the steps that follow from it.
same() { # TITLE A B
  local far; far=$(paste <(losses "$2") <(losses "$3") | awk 'function far(a, b) { return a - b > 1e-5 * b || b - a > 1e-5 * b }
    NF != 6 || $1 != $4 || far($2, $5) || far($3, $6) { n++ } END { print (NR > 0 ? n + 0 : "nothing") }')
  check_eq "$1" 0 "$far"
}
# Every operation against the reference: these lines are the program's own.
for order in late early 9; do
  FSDP_EMULATED_ORDER=$order "$TOY/cuda_numerics" > numerics.out 2>&1 || n_failed=$((n_failed + 1))
  grep -E '^(ok|not ok) ' numerics.out || not_ok "the cuda row of numerics, $order" "$(tail -n 5 numerics.out)"
done
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

# Whatever keys of sharding a job has, and in bfloat16: the same on both. Bits of 8 bits of mantissa differ where a sum
# falls on the other side, so these are held to 1e-2.
like() { # TITLE TOLERANCE OPTIONS...
  local title=$1 tolerance=$2 name=$3; shift 3
  check "$title: on the cpu" train "cpu-$name" cpu 2 "$@"
  check "$title: on cuda" train "cuda-$name" cuda 2 "$@"
  check_eq "$title: the same" 0 "$(paste <(losses "cpu-$name") <(losses "cuda-$name") | awk -v t="$tolerance" 'function far(a, b) { return a - b > t * b || b - a > t * b }
    NF != 6 || far($2, $5) || far($3, $6) { n++ } END { print (NR > 0 ? n + 0 : "nothing") }')"
}
like "kept after forward" 1e-5 keep --set parallel.reshard_after_forward=false
like "accumulation" 1e-5 accumulate --set train.grad_accumulation=3
like "recomputing" 1e-5 recompute --set parallel.activation_checkpoint=full
like "dropout" 1e-5 dropout --set model.dropout=0.2
like "momentum" 1e-5 momentum --set optimizer.kind=sgd --set optimizer.momentum=0.9
like "replicas" 1e-5 replicas --set parallel.replicate=2
like "bfloat16" 1e-2 bf16 --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=float32

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
# What is not built is refused.
refused() { # OFFLOAD LINE
  train "offload-$1" cuda 1 --set "parallel.offload=$1"
  check_match "parallel.offload: $1" "$2" "$(cat "offload-$1.out")"
}
refused cpu 'offload of shards to host memory is not supported on cuda'
refused nvme 'optimizer state in a file is not supported on cuda'
# Memory that is not there is told in words.
FSDP_EMULATED_MEMORY=200000 train nomem cuda 1
check_match "out of memory, with the call, rank and device" 'cudaMalloc.*out of memory.*device.c:[0-9]+, rank 0, device 0 \(emulated\)' "$(cat nomem.out)"
# Ranks that share a GPU are NCCL's to refuse, and ours to say.
COLLECTIVES=nccl train shared cuda 2
check_match "nccl on a shared GPU is refused" 'share a GPU.*take cpu' "$(cat shared.out)"
[ "$n_failed" -eq 0 ]
