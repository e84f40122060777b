# On a GPU: every operation of the cuda row against the plain reference. Each group is a process with a bound
# of its own, so that one that hangs or is refused leaves the others.
. tests/support/shell/harness.sh
. tests/gpu/gpu.sh
# run TITLE COMMAND...: the lines of a program; no line and a status other than 0 are failures.
run() {
  local title=$1 status; shift
  at_most 25 "$@" > "$WORK/out" 2>&1; status=$?
  cat "$WORK/out"
  if ! grep -qE '^(ok|not ok|skip) ' "$WORK/out" || { [ $status -ne 0 ] && ! grep -q '^not ok ' "$WORK/out"; }; then
    not_ok "$title on a GPU" "status $status" "$(tail -n 5 "$WORK/out")"
  elif [ $status -ne 0 ]; then
    n_failed=$((n_failed + 1))
  fi
}
for group in products kernels attention lists collectives; do run "$group" "$TOY/cuda_numerics" $group; done
# Attention by cuDNN at the shapes that it takes; then both implementations, timed. Without cuDNN the second
# says so.
FSDP_CUDA_ATTENTION=auto run "attention by cuDNN" "$TOY/cuda_numerics" attention
run "attention of both kinds" "$TOY/attention_time"
[ "$n_failed" -eq 0 ]
