# On a GPU: every operation of the cuda row against the plain reference.
. tests/support/harness.sh
. tests/gpu/gpu.sh
"$TOY/cuda_numerics" > "$WORK/out" 2>&1 || n_failed=$((n_failed + 1))
cat "$WORK/out"
grep -qE '^(ok|not ok) ' "$WORK/out" || not_ok "kernels on a GPU" "$(tail -n 5 "$WORK/out")"
[ "$n_failed" -eq 0 ]
