# On a GPU: every operation of the cuda row against the plain reference, and under compute-sanitizer where it is found.
. tests/support/harness.sh
. tests/gpu/gpu.sh
"$TOY/cuda_numerics" > "$WORK/out" 2>&1 || n_failed=$((n_failed + 1))
cat "$WORK/out"
grep -qE '^(ok|not ok) ' "$WORK/out" || not_ok "kernels on a GPU" "$(tail -n 5 "$WORK/out")"
[ -z "${FSDP_TEST_EMULATED_GPU:-}" ] || exit "$n_failed"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
for tool in memcheck racecheck synccheck; do
  if [ -z "$sanitizer" ]; then skip "kernels under $tool" "no compute-sanitizer here"; continue; fi
  check "kernels under $tool" timeout 90 "$sanitizer" --tool "$tool" --error-exitcode 9 "$TOY/cuda_numerics"
done
[ "$n_failed" -eq 0 ]
