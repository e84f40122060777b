# On a GPU: every operation of the cuda row under compute-sanitizer, where it is found: FSDP_GPU_TOOLS="memcheck racecheck synccheck", 30 s
# a tool. A tool that takes longer is skipped. Only our kernels: products and collectives are libraries. An error that a call of the API returned is no finding: a program asks for what it can do without.
. tests/support/harness.sh
. tests/gpu/gpu.sh
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
for tool in ${FSDP_GPU_TOOLS:-memcheck racecheck synccheck}; do
  if [ -n "${FSDP_TEST_EMULATED_GPU:-}" ]; then skip "kernels under $tool" "the GPU is emulated"; continue; fi
  if [ -z "$sanitizer" ]; then skip "kernels under $tool" "no compute-sanitizer here"; continue; fi
  for group in kernels attention lists; do
    at_most 30 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 "$TOY/cuda_numerics" $group > "$WORK/out" 2>&1
    case $? in
      0) ;;
      124 | 137) skip "$group under $tool" "it takes too long"; continue ;;
      *) not_ok "$group under $tool" "$(tail -n 20 "$WORK/out")"; continue ;;
    esac
    ok "$group under $tool"
  done
done
[ "$n_failed" -eq 0 ]
