# On a GPU: every operation of the cuda row against the plain reference.
. tests/support/harness.sh
. tests/gpu/gpu.sh
"$TOY/cuda_numerics" > "$WORK/out" 2>&1 || n_failed=$((n_failed + 1))
cat "$WORK/out"
grep -qE '^(ok|not ok) ' "$WORK/out" || not_ok "kernels on a GPU" "$(tail -n 5 "$WORK/out")"
# Attention by cuDNN where the row's shapes are such as it is asked for; then both side by side, timed. Without a cuDNN the second says so.
FSDP_CUDA_ATTENTION=auto "$TOY/cuda_numerics" > "$WORK/auto" 2>&1 || n_failed=$((n_failed + 1))
grep -E '^(ok|not ok) .*attention' "$WORK/auto" || not_ok "attention by cuDNN on a GPU" "$(tail -n 5 "$WORK/auto")"
"$TOY/attention_time" > "$WORK/time" 2>&1 || n_failed=$((n_failed + 1))
cat "$WORK/time"
grep -qE '^(ok|not ok|skip) ' "$WORK/time" || not_ok "attention side by side" "$(tail -n 5 "$WORK/time")"
[ "$n_failed" -eq 0 ]
