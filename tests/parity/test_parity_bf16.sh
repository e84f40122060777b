#!/usr/bin/env bash
# Mixed precision under fsdprun against PyTorch in fp64: no worse than PyTorch's own (tests/parity/README.md).
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/parity.sh

# Of the short case at 4 ranks a rank sees nine tokens: which way so few roundings fall is luck, PyTorch's and
# ours.
for shape in plain short long gpt2; do
  case $shape in plain | gpt2) worlds="1 2 4" ;; short | long) worlds="1 2" ;; esac
  for reduce in float32 bfloat16; do
    for W in $worlds; do
      bounded_mode "$shape" "$shape.$reduce.$W" "$W" "$reduce"
    done
  done
done

# way NAME: how the run said in its first line that it multiplies bfloat16.
way() { grep -o -m 1 'bfloat16 native\|bfloat16 by float32 products' "$WORK/$1.log"; }
check_eq "of all ranks one says it, once" 1 "$(grep -c 'bfloat16 native\|bfloat16 by float32' "$WORK/plain.float32.2.log")"
if grep -q -w 'avx512_bf16\|amx_bf16' /proc/cpuinfo; then
  check_match "this CPU's own products were taken" '^bfloat16 native$' "$(way plain.float32.1)"
else
  skip "this CPU's own products were taken" "no AVX512-BF16 and no AMX"
fi

# A CPU without products of bfloat16: storage in bfloat16, products in float32, the same limits.
export DNNL_MAX_CPU_ISA=AVX2
bounded_mode plain without-bfloat16-products 2 float32
check_match "without bfloat16 products they are float32's" '^bfloat16 by float32 products$' "$(way without-bfloat16-products)"
[ "$n_failed" -eq 0 ]
