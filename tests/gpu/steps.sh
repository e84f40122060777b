#!/usr/bin/env bash
# Three steps of GPT-2 at one rank: steps.sh DTYPE [SIZE], float32 or bfloat16, 124m. Prints the run's own
# lines. A loss that is not finite ends the run. Exit status: 0; 1 the run failed; 69 no GPU here.
set -u
cd "$(dirname "$0")/../.." || exit 1
export BUILD=${BUILD:-$PWD/build}
dtype=$1 size=${2:-124m}
case $size in tiny) model='{kind: gpt2, layers: 2, dim: 64, heads: 2, vocab: 256, seq: 64}' ;; *) model="{kind: gpt2, preset: $size}" ;; esac
. scripts/gpu-env.sh
[ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || gpu_here || { echo "steps: no GPU here" >&2; exit 69; }
WORK=$(mktemp -d); trap 'rm -rf "$WORK"' EXIT
. tests/gpu/gpu.sh
cat > "$WORK/job.yaml" <<JOB
run: {name: steps, dir: $WORK, log_every: 1}
data: {path: $PWD/tests/parity/excerpt.txt}
model: $model
train: {steps: 3, batch: 4, clip_norm: 1.0}
optimizer: {lr: 6.0e-4}
parallel: {param_dtype: $dtype}
checkpoint: {every: 0}
launch: {max_restarts: 0}
JOB
FSDP_DEVICE=cuda "$BUILD/bin/fsdprun" "$WORK/job.yaml" 2>&1
