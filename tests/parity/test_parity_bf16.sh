#!/usr/bin/env bash
# Mixed precision under fsdprun against PyTorch in fp64: no worse than PyTorch's own (tests/parity/README.md).
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
. tests/support/train.sh
PARITY=$SOURCE/tests/parity
compare=$TOY/parity_compare

# train SHAPE NAME W SETTING...: one run of a case in bfloat16; its directory is $WORK/NAME.
train() {
  local file=$PARITY/reference/$1.adamw.txt name=$2 W=$3 setting args=(); shift 3
  while read -r setting; do args+=(--set "$setting"); done < <(sed -n 's/^set //p' "$file")
  for setting in parallel.param_dtype=bfloat16 "$@"; do args+=(--set "$setting"); done
  run_job "$WORK/$name.log" --nproc-per-node "$W" "$PARITY/parity.yaml" "${args[@]}" \
    --set "run.dir=$WORK" --set "run.name=$name" || { tail -n 5 "$WORK/$name.log"; return 1; }
}

# Of the short case at 4 ranks a rank sees nine tokens: which way so few roundings fall is luck, PyTorch's and ours.
for shape in plain short long gpt2; do
  case $shape in plain) worlds="1 2 4" ;; short | long | gpt2) worlds="1 2" ;; esac
  for reduce in float32 bfloat16; do
    for W in $worlds; do
      name=$shape.$reduce.$W
      check "$name trains" train "$shape" "$name" "$W" "parallel.reduce_dtype=$reduce"
      check "$name: losses" "$compare" bounded-losses "$PARITY/reference/$shape.adamw.txt" "$WORK/$name/metrics.jsonl" \
        "$PARITY/reference/$shape.bf16.txt" "$reduce"
      check "$name runs one step for its gradient" train "$shape" "$name.gradient" "$W" "parallel.reduce_dtype=$reduce" \
        "optimizer.betas=[0.0, 0.95]" train.steps=1 train.clip_norm=0.0 checkpoint.every=1
      check "$name: gradients of step 1" "$compare" bounded "$PARITY/reference/$shape.gradients.txt" \
        "$WORK/$name.gradient/checkpoints/step-00000001" optimizer.exp_avg. "$PARITY/reference/$shape.bf16.txt" "$reduce"
    done
  done
done

# way NAME: how the run said in its first line that it multiplies bfloat16.
way() { grep -o -m 1 'bfloat16 native\|bfloat16 by float32 products' "$WORK/$1.log"; }
if grep -q -w 'avx512_bf16\|amx_bf16' /proc/cpuinfo; then
  check_match "this CPU's own products were taken" '^bfloat16 native$' "$(way plain.float32.1)"
else
  skip "this CPU's own products were taken" "no AVX512-BF16 and no AMX"
fi

# A CPU without products of bfloat16: storage in bfloat16, products in float32, the same limits.
export DNNL_MAX_CPU_ISA=AVX2
check "without bfloat16 products: trains" train plain avx2 2 parallel.reduce_dtype=float32
check_match "without bfloat16 products: they are float32's" '^bfloat16 by float32 products$' "$(way avx2)"
check "without bfloat16 products: losses" "$compare" bounded-losses "$PARITY/reference/plain.adamw.txt" \
  "$WORK/avx2/metrics.jsonl" "$PARITY/reference/plain.bf16.txt" float32
check "without bfloat16 products: runs one step" train plain avx2.gradient 2 parallel.reduce_dtype=float32 \
  "optimizer.betas=[0.0, 0.95]" train.steps=1 train.clip_norm=0.0 checkpoint.every=1
check "without bfloat16 products: gradients of step 1" "$compare" bounded "$PARITY/reference/plain.gradients.txt" \
  "$WORK/avx2.gradient/checkpoints/step-00000001" optimizer.exp_avg. "$PARITY/reference/plain.bf16.txt" float32
[ "$n_failed" -eq 0 ]
