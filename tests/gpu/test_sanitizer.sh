# On a GPU: every operation of the cuda row under compute-sanitizer, where it is found: 30 s a tool, and 55 s for all of them (gpu-check.sh has
# 60). A tool that takes longer says nothing.
. tests/support/harness.sh
. tests/gpu/gpu.sh
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
for tool in memcheck racecheck synccheck; do
  if [ -n "${FSDP_TEST_EMULATED_GPU:-}" ]; then skip "kernels under $tool" "the GPU is emulated"; continue; fi
  if [ -z "$sanitizer" ]; then skip "kernels under $tool" "no compute-sanitizer here"; continue; fi
  left=$((55 - SECONDS))
  if [ "$left" -lt 1 ]; then skip "kernels under $tool" "no time is left"; continue; fi
  timeout $((left < 30 ? left : 30)) "$sanitizer" --tool "$tool" --error-exitcode 9 "$TOY/cuda_numerics" > "$WORK/out" 2>&1
  case $? in
    0) ok "kernels under $tool" ;;
    124) skip "kernels under $tool" "it takes too long" ;;
    *) not_ok "kernels under $tool" "$(tail -n 5 "$WORK/out")" ;;
  esac
done
[ "$n_failed" -eq 0 ]
