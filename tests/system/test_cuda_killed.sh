# A rank is killed on the emulated device in the middle of a call: in what a forward queues, in backward,
# between reductions, in the optimizer, while a checkpoint is read from the device, at random points
# (FSDP_KILLED_SEED; FSDP_NIGHTLY=1 for more). The other one, in a collective of the stand-in for NCCL or on
# its way there, is told and ends; both start again, and losses and norms are those of a run that nothing
# disturbed, digit for digit.
# Nightly: cuda
. tests/support/shell/harness.sh
export FSDP_DEVICE=cuda FSDP_COLLECTIVES=nccl FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so FSDP_EMULATED_DEVICES=2
. tests/support/shell/cuda_emulated.sh
sed -i 's/steps: 4/steps: 4/; s/every: 2/every: 1/' job.yaml
train() { # NAME OPTIONS...
  local name=$1; shift
  mkdir -p "$name"
  NCCL_STANDIN_DIR=$WORK/$name FSDP_EMULATED_CALLS=$WORK/$name/made timeout 2400 "$BIN/fsdprun" \
    --nproc-per-node 2 --log-dir "$WORK/$name" --set launch.max_restarts=1 job.yaml > "$WORK/$name.out" 2>&1
}
curve() { losses "$1" | sort -n -u; } # a step that was done again is there twice, with the same digits
check "a run that nothing disturbs" train undisturbed
check_eq "it has four steps" 4 "$(curve undisturbed | wc -l)"

# A phase of the step is known by its calls, each of which is NAME#N among all calls of rank 1's clean run.
calls=undisturbed/made.1
pick() { # PATTERN N SEED: N of those calls, without the first two, which may be of the start
  awk '{ print $1 "#" ++n[$1] }' "$calls" | grep -E "$1" | sed 1,2d |
    awk -v n="$2" -v seed="$3" 'BEGIN { srand(seed) } { line[NR] = $0 }
      END { for (i = 0; i < n && NR > 0; i++) print line[int(rand() * NR) + 1] }'
}
seed=${FSDP_KILLED_SEED:-$((RANDOM))}; times=1; [ -z "${FSDP_NIGHTLY:-}" ] || times=6
echo "# FSDP_KILLED_SEED=$seed"
{
  pick '^cudaLaunchKernel:(layer_norm|embed|attention_plain_rows|activation_forward)' $((2 * times)) "$seed"
  pick '^cudaLaunchKernel:(loss_|norm_|attention_plain_gradient|activation_gradient|sort_tiles|sum_runs)' $((2 * times)) "$((seed + 1))"
  pick '^cublasLtMatmul#' "$times" "$((seed + 2))"
  pick '^ncclAllGather#' "$times" "$((seed + 3))"
  pick '^ncclReduceScatter#' "$times" "$((seed + 4))"
  pick '^cudaLaunchKernel:(adamw|power|cast)' $((2 * times)) "$((seed + 5))"
  pick '^cudaMemcpyAsync#' $((2 * times)) "$((seed + 6))" # most of them bring a checkpoint's rows to the host
  pick '^cudaEventRecord#' "$times" "$((seed + 7))"
} | sort -u > points
check "there are ten points to be killed at" test "$(wc -l < points)" -ge 10
while read -r point; do
  name=$(printf '%s' "$point" | tr ':#' '__')
  FSDP_EMULATED_FAULT="1:$point!kill" train "$name"; rc=$?
  if ! grep -q ' fails$' "$name/made.1"; then skip "killed at $point" "it was not reached"; continue; fi
  check_eq "killed at $point: the run ends well" 0 "$rc"
  check_match "killed at $point: rank 1 died of KILL, and the world was formed again" \
    '"generation": 0, "rank": 1, .*"signal": 9' "$(cat "$name"/run/events.jsonl)"
  check_eq "killed at $point: nothing is different" "$(curve undisturbed)" "$(curve "$name")"
  rm -rf "$name"
done < points
