#!/usr/bin/env bash
# The bandwidth of each kernel where it works: five steps at one rank, with the table of FSDP_CUDA_PROFILE:
# GB/s of what the plan says that an entry moves, and their share of the memory's peak.
#   profile.sh gpt2 [SIZE[:BATCH]]   GPT-2 in bfloat16 (124m:32); with FSDP_CUDA_EPILOGUES=bias kernels of ours stand in for epilogues
#   profile.sh others [SIZE]         what GPT-2 has not: RMSNorm, dropout, exact GELU, SGD, stochastic rounding
#   profile.sh float8 [SIZE]         weights gathered in float8; and sums with their RMSNorm, as there is no dropout
# "tiny" is a size to try it. Exit status: 0; 1 the run failed, or left no table; 69 no GPU here.
set -u
cd "$(dirname "$0")/../.." || exit 1
export BUILD=${BUILD:-$PWD/build}
what=$1 at=${2:-124m:32}
size=${at%:*} batch=${at#*:}
[ "$batch" != "$at" ] || batch=8
width="layers: 4, dim: 768, heads: 12, vocab: 50304, seq: 1024"
[ "$size" != tiny ] || width="layers: 1, dim: 64, heads: 1, vocab: 256, seq: 64"
optimizer="{lr: 6.0e-4}" parallel="param_dtype: bfloat16"
case $what in
gpt2) model="{kind: gpt2, preset: $size}"; [ "$size" != tiny ] || model="{kind: gpt2, $width}" ;;
others) model="{kind: transformer, $width, norm: rmsnorm, dropout: 0.1}" \
  optimizer="{kind: sgd, lr: 1.0e-3, momentum: 0.9}" parallel="$parallel, stochastic_rounding: true" ;;
float8) model="{kind: transformer, $width, norm: rmsnorm}" parallel="$parallel, float8_gather: true" ;;
*) echo "profile: $what is none of gpt2, others, float8" >&2; exit 2 ;;
esac
. scripts/gpu-env.sh
[ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || gpu_here || { echo "profile: no GPU here" >&2; exit 69; }
WORK=$(mktemp -d); trap 'rm -rf "$WORK"' EXIT
. tests/gpu/gpu.sh
[ -z "${FSDP_TEST_EMULATED_GPU:-}" ] || export FSDP_EMULATED_CAPABILITY=90 # with float8
LC_ALL=C awk -v n=1048576 -f tests/bench/gpu/zipf.awk > "$WORK/data"
cat > "$WORK/job.yaml" <<JOB
run: {name: profile, dir: $WORK, log_every: 1}
data: {path: $WORK/data}
model: $model
train: {steps: 5, batch: $batch, clip_norm: 1.0}
optimizer: $optimizer
parallel: {$parallel}
checkpoint: {every: 0}
launch: {max_restarts: 0}
JOB
FSDP_DEVICE=cuda FSDP_CUDA_PROFILE=1 "$BUILD/bin/fsdprun" "$WORK/job.yaml" 2>&1 | tee "$WORK/out"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ] && grep -q 'float8 needs at least' "$WORK/out"; then echo "skip - bandwidth with float8: this GPU is too old for it"; exit 0; fi
[ "$status" -eq 0 ] || exit 1
grep -q 'cuda profile, rank 0' "$WORK/out" || { echo "profile: there is no table" >&2; exit 1; }
