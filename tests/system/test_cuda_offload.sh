# parallel.offload on the emulated device: shards, gradients and optimizer state in host memory. The losses
# are those of a run without it, digit for digit (the norm too: sums in double, in another order, of which
# nine digits are written). What is copied goes on streams of its own, from page-locked memory, and no step
# waits for it before its end.
# Nightly: cuda
. tests/support/shell/harness.sh
. tests/support/shell/cuda_emulated.sh
# train NAME RANKS OPTIONS...: a run of its own
train() {
  local name=$1 n=$2; shift 2
  FSDP_DEVICE=cuda FSDP_COLLECTIVES=${COLLECTIVES:-cpu} timeout 2400 "$BIN/fsdprun" --nproc-per-node "$n" \
    --log-dir "$WORK/$name" "$@" job.yaml > "$WORK/$name.out" 2>&1
}
# on NAME RANKS OPTIONS...: without offload. off WAY NAME RANKS OPTIONS...: with it, and the same digits
on() { local name=$1 n=$2; shift 2; check "$name: without offload" train "on-$name" "$n" "$@"; }
off() {
  local way=$1 name=$2 n=$3; shift 3
  check "$name: offload: $way" train "$way-$name" "$n" "$@" --set "parallel.offload=$way"
  check_eq "$name: the same digits" "$(losses "on-$name")" "$(losses "$way-$name")"
}
export FSDP_EMULATED_CAPABILITY=89 # of float8
on one 1; on two 2
for order in late early 5; do FSDP_EMULATED_ORDER=$order off cpu two 2; done
FSDP_EMULATED_ORDER=11 off cpu one 1
if [ "$(stat -f -c %T "$WORK")" = tmpfs ]; then
  skip "optimizer state in a file" "the tests' directory is in memory (tmpfs)"
else
  off nvme one 1; off nvme two 2
fi
for case in "four 4" "bfloat16 2 parallel.param_dtype=bfloat16 parallel.reduce_dtype=bfloat16" "bfloat16-alone 1 parallel.param_dtype=bfloat16" \
  "micro-steps 2 train.grad_accumulation=3" "each-reduced 2 train.grad_accumulation=3 parallel.gradient_sync=every" "replicas 4 parallel.replicate=2" \
  "kept 2 parallel.reshard_after_forward=false parallel.activation_checkpoint=full" "in-backward 2 optimizer.in_backward=true train.clip_norm=0" \
  "float8 2 parallel.float8_gather=true parallel.param_dtype=bfloat16" "float8-alone 1 parallel.float8_gather=true"; do
  read -r name n sets <<< "$case"
  set --; for s in $sets; do set -- "$@" --set "$s"; done
  on "$name" "$n" "$@"; FSDP_EMULATED_ORDER=${#name} off cpu "$name" "$n" "$@"
done

# A checkpoint is a checkpoint: with offload and without, at another world size.
go_on() { # FROM TO OPTIONS...
  local from=$1 to=$2; shift 2
  cp -r "$from" "$to" && train "$to" 4 --set train.steps=6 "$@"
}
check "a checkpoint of it goes on without it" go_on cpu-two off-to-on
check "and one without it with it" go_on on-two on-to-off --set parallel.offload=cpu
check_eq "the two end alike, digit for digit" "$(losses off-to-on)" "$(losses on-to-off)"
check_match "at the last step" '^6 ' "$(losses on-to-off | tail -n 1)"
check "text from such a checkpoint" env FSDP_DEVICE=cuda "$BIN/fsdp-train" --sample cpu-two/run --tokens 8

# Steps of a rank, call by call. Each unit is copied in before its use, and its gradients are copied out. The
# host waits for nothing between the first and the last of these copies, except in the first step, where
# scratch grows.
# Streams are numbered as the plan has them: 5 in, 6 out.
# Three units in forward, two of them again in backward (the root is kept).
stretches() {
  awk '$1 == "wait" && (i || o) { print i " in " o " out"; i = o = 0 } $1 == "copy" && $3 == 5 { i++ } $1 == "copy" && $3 == 6 { o++ }' "$1"
}
FSDP_EMULATED_TRACE=$WORK/trace train traced 1 --set parallel.offload=cpu --set checkpoint.every=0
check_eq "each step without a wait" "5 in 3 out 5 in 3 out 5 in 3 out" "$(stretches trace.0 | tail -n 3 | xargs)"
# With NCCL's collectives, which the host does not wait for either.
mkdir -p standin
by_nccl() {
  FSDP_EMULATED_TRACE=$WORK/nccl-trace FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so NCCL_STANDIN_DIR=$WORK/standin FSDP_EMULATED_DEVICES=2 COLLECTIVES=nccl train "$@"
}
check "2 ranks by nccl, offloaded" by_nccl nccl-off 2 --set parallel.offload=cpu --set checkpoint.every=0
check_eq "the same digits" "$(losses on-two)" "$(losses nccl-off)"
check_eq "each step without a wait" "5 in 3 out 5 in 3 out 5 in 3 out" "$(stretches nccl-trace.0 | tail -n 3 | xargs)"
check_eq "all of it page-locked" "" "$(awk '$1 == "copy" && ($3 == 5 || $3 == 6) && $5 != "locked"' trace.0)"
