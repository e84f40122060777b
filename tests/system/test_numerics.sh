#!/usr/bin/env bash
# The numerics row in fresh processes: what oneDNN and the row kernels choose is decided once per process.
. tests/support/harness.sh
shapes=$TOY/matmul_shapes

# every_product NAME EXPECTED-DESCRIPTION COMMAND...
every_product() {
  local name=$1 want=$2 out; shift 2
  if out=$("$@" 2>&1) && ! grep -q WRONG <<< "$out" && [ "$(grep -c ' ok ' <<< "$out")" = 12 ]; then
    check_match "$name" "$want" "$(head -n 1 <<< "$out")"
  else
    not_ok "$name" "$(tail -n 15 <<< "$out")"
  fi
}

every_product "products of plain C" '^plain .*1 thread$' "$shapes" plain
every_product "products of the reference" '^ref, 1 thread$' "$shapes" ref 4
if grep -qw avx512f /proc/cpuinfo; then
  every_product "the CPU's widest set is taken" 'rows avx512' "$shapes" plain
else
  skip "the CPU's widest set is taken" "no AVX-512"
fi

if "$shapes" onednn > "$WORK/onednn" 2>&1; then
  every_product "products of oneDNN on one thread" '^onednn 2\..*1 thread$' "$shapes" onednn 1
  every_product "products of oneDNN on two threads" '^onednn 2\..*2 threads$' "$shapes" onednn 2
  if grep -qw avx2 /proc/cpuinfo; then
    every_product "products of oneDNN held to AVX2" 'products avx2,' env DNNL_MAX_CPU_ISA=AVX2 "$shapes" onednn 2
  else
    skip "products of oneDNN held to AVX2" "this CPU has no AVX2"
  fi
  every_product "products of oneDNN held to SSE4.1" 'products sse41,' env DNNL_MAX_CPU_ISA=SSE41 "$shapes" onednn 2

  # A layout that oneDNN has no fast code for would fall to its reference loops, a hundred times slower.
  implementations() { env DNNL_VERBOSE=1 "$@" "$shapes" onednn 2>&1 | grep -E '^(onednn|dnnl)_verbose,exec' | cut -d, -f5 | sort -u; }
  for isa in ALL AVX2; do
    used=$(implementations DNNL_MAX_CPU_ISA=$isa)
    if [ -z "$used" ]; then
      not_ok "no product runs in a reference implementation ($isa)" "DNNL_VERBOSE=1 printed nothing"
    elif grep -vqE '^(brg|gemm):' <<< "$used"; then
      not_ok "no product runs in a reference implementation ($isa)" "used: $used"
    else
      ok "no product runs in a reference implementation ($isa)"
    fi
  done
elif grep -q 'not one of' "$WORK/onednn"; then
  skip "products of oneDNN" "this build is without oneDNN"
else
  not_ok "products of oneDNN" "$(tail -n 5 "$WORK/onednn")"
fi

check_status "an unknown FSDP_ISA is refused" 1 env FSDP_ISA=mmx "$shapes" plain
check_match "and named" 'FSDP_ISA=mmx' "$(cat "$WORK/err")"
check_status "FSDP_NUMERICS overrides auto" 0 env FSDP_NUMERICS=plain FSDP_ISA=base "$shapes" auto
check_match "down to the instruction set" '^plain \(rows base\), 1 thread' "$(head -n 1 "$WORK/out")"
check_status "an unknown FSDP_NUMERICS is refused" 1 env FSDP_NUMERICS=mkl "$shapes" auto
exit $((n_failed > 0))
