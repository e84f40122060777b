# oneDNN chooses its kernels once per process: the unit tests of products, with oneDNN held to other
# instruction sets than this CPU's.
. tests/support/shell/harness.sh
unit=$BUILD/test/unit
if ! ldd "$unit" | grep -q libdnnl; then
  skip "products of oneDNN" "this build is without oneDNN"
  exit 0
fi
for isa in ALL AVX2 SSE41; do
  words=products
  case $isa in
  AVX2) words='products avx2,'; grep -qw avx2 /proc/cpuinfo || { skip "oneDNN held to AVX2" "this CPU has no AVX2"; continue; } ;;
  SSE41) words='products sse41,' ;;
  esac
  check_status "products of oneDNN held to $isa" 0 env DNNL_MAX_CPU_ISA=$isa FSDP_TEST_DESCRIBED="$words" \
    "$unit" --filter '@(numerics_matmul|numerics_open)/*'

  # A layout that oneDNN has no fast code for would fall to its reference loops, a hundred times slower.
  used=$(env DNNL_VERBOSE=1 DNNL_MAX_CPU_ISA=$isa "$unit" --filter 'numerics_matmul/@(heads|rows|one)*' 2>&1 |
    grep -aE '^(onednn|dnnl)_verbose,exec' | cut -d, -f5 | sort -u)
  check_match "no product runs in a reference implementation ($isa)" '^(brg|gemm):' "$used"
  check_eq "... nor any other" "" "$(grep -vE '^(brg|gemm):' <<< "$used")"
done
exit $((n_failed > 0))
