# On a GPU: NCCL between two ranks that share it, which NCCL takes from 2.30 on when it is told to. The stored
# references of tests/parity, with the bits of the way through the host: a sum of two has one order. An older
# NCCL, or none, is a skip.
. tests/support/shell/harness.sh
. tests/gpu/gpu.sh
. tests/support/shell/parity.sh
. tests/gpu/reference.sh
cd "$WORK" || exit 1
why=$(nccl_shares) || { skip "two ranks of NCCL on one GPU" "$why"; exit 0; }
export NCCL_MULTI_RANK_GPU_ENABLE=1
for case in ${FSDP_GPU_CASES:-short.adamw gpt2.adamw}; do
  check "$case, 2 ranks of NCCL on one GPU" parity nccl 2 "$case"
  check "$case, 2 ranks by way of the host" parity cpu 2 "$case"
  check_eq "$case: the same bits both ways" "$(losses cpu.2.$case)" "$(losses nccl.2.$case)"
done
[ "$n_failed" -eq 0 ]
