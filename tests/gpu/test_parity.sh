# On a GPU: the stored references of tests/parity on the cuda back end, at 1 rank (with NCCL where it is
# found) and at 2 and 4 ranks that share the GPU; the same bits twice; GPT-2 in bfloat16 and in TF32. The
# bounds and their reasons: reference.sh.
#   FSDP_GPU_CASES="short.adamw ..."     the cases
#   FSDP_GPU_RANKS="1 2 4"               at how many ranks, 1 among them
. tests/support/shell/harness.sh
. tests/gpu/gpu.sh
. tests/support/shell/parity.sh
. tests/gpu/reference.sh
cd "$WORK" || exit 1
for case in ${FSDP_GPU_CASES:-short.adamw short.sgd plain.adamw gpt2.adamw gpt2.sgd long.adamw}; do
  for n in ${FSDP_GPU_RANKS:-1 2 4}; do
    if [ "$n" = 1 ]; then check "$case, 1 rank, collectives $alone" parity "$alone" 1 "$case"
    else check "$case, $n ranks on one GPU" parity cpu "$n" "$case"; fi
  done
done
check "gpt2.adamw in bfloat16, 1 rank" parity_near bfloat16 "$alone" gpt2 parallel.param_dtype=bfloat16
check "gpt2.adamw in bfloat16: gradients of step 1" gradients_near bfloat16.gradient "$alone" gpt2 parallel.param_dtype=bfloat16
FSDP_CUDA_TF32=1 check "gpt2.adamw in TF32: gradients of step 1" gradients_near tf32 "$alone" gpt2
read -r case _ <<< "${FSDP_GPU_CASES:-short.adamw}"
mv "$alone.1.$case" first; check "$case again" parity "$alone" 1 "$case"
check_eq "has the same bits" "$(losses first)" "$(losses "$alone.1.$case")"
[ "$n_failed" -eq 0 ]
