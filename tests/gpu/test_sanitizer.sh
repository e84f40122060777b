# On a GPU: every operation of the cuda row under compute-sanitizer, where it is found:
# FSDP_GPU_TOOLS="memcheck racecheck synccheck", 20 s for each tool and group. A tool that takes longer is
# skipped. Our kernels alone are instrumented: those of libraries are filtered out by name, and no group here
# opens NCCL. An error that a call of the API returned is no finding: a program asks for what it can do
# without.
. tests/support/shell/harness.sh
. tests/gpu/gpu.sh
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
# The option was --kernel-regex until 2024, with the same keys: kns is a substring of the mangled name, and
# filters add up.
filter=$([ -z "$sanitizer" ] || "$sanitizer" --help 2> /dev/null | grep -oE -m 1 -e '--kernel-(name|regex) ')
only=()
for name in $(grep -hA1 __global__ shard_runtime/cuda/kernels/*.cu | grep -oE '[a-z_0-9]+\(' | grep -v launch_bounds | tr -d '('); do
  [ -z "$filter" ] || only+=("${filter% }" "kns=$name")
done
for tool in ${FSDP_GPU_TOOLS:-memcheck racecheck synccheck}; do
  if [ -z "$sanitizer" ]; then skip "kernels under $tool" "no compute-sanitizer here"; continue; fi
  [ -n "$filter" ] || echo "# this compute-sanitizer has no filter of kernels: all of them are checked"
  for group in kernels attention lists; do
    at_most 20 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 "${only[@]}" "$TOY/cuda_numerics" $group > "$WORK/out" 2>&1
    case $? in
      0) ;;
      124 | 137) skip "$group under $tool" "it takes too long"; continue ;;
      *) not_ok "$group under $tool" "$(tail -n 20 "$WORK/out")"; continue ;;
    esac
    ok "$group under $tool"
  done
done
[ "$n_failed" -eq 0 ]
