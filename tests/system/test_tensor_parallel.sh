# parallel.tensor: N, through fsdprun: the losses, norms and gradients of PyTorch in fp64 at any split of four
# ranks, a run that goes on at another split, and a group on unequal machines. Plans and refusals: the unit
# tests tensor_parallel and broken.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/parity.sh

# test_fully_shard_training.py: TestFullyShardNDTraining
mode plain tensor 4 parallel.tensor=2
mode plain tensor-replicas 4 parallel.tensor=2 parallel.replicate=2 train.batch=2
# Heads of 70 positions, whose attention stores no matrix, on ranks of their own; and sharded as well.
mode long tensor-long 3 parallel.tensor=3
mode long tensor-sharded-long 6 parallel.tensor=3

# In bfloat16 the parts of a split product are rounded before they are added up: no farther from fp64 than
# PyTorch's unsplit training is allowed to be.
for reduce in float32 bfloat16; do
  bounded_mode plain "tensor-$reduce" 4 "$reduce" parallel.tensor=2
done
bounded_mode long tensor-long-float32 3 float32 parallel.tensor=3

# A checkpoint of one split is another's: over 2 x 2, then 3 ranks that shard, then 2 that split, against the
# same reference.
check "over 2 x 2 ranks, eight steps" train_case plain.adamw splits 4 parallel.tensor=2 train.steps=8 checkpoint.every=8
check "four more over three" train_case plain.adamw splits 3 train.steps=12 checkpoint.every=12
check "and the rest over two that split" train_case plain.adamw splits 2 parallel.tensor=2 checkpoint.every=20
check "a run over three splits: losses and norms" "$compare" steps "$PARITY/reference/plain.adamw.txt" "$WORK/splits/metrics.jsonl"

# Checkpoints have one copy of what the ranks of a group all hold. Where one rank computes with other
# instructions, the copies must stay equal all the same: a run that goes on is the run that never ended. It is
# rank 3 here, so the other group of two is on equal machines, but sums its gradients with this one's.
if grep -q avx2 /proc/cpuinfo; then
  tiny_job "$WORK/job.yaml"
  base_instructions "$WORK/mixed" 3
  mkdir "$WORK/disk"
  mixed() {
    BIN=$WORK/mixed run_job "$WORK/$1.log" --nproc-per-node 4 "$WORK/job.yaml" --set "run.name=$1" --set parallel.tensor=2 "${@:2}"
  }
  for how in shards replicas backward nvme; do
    case $how in
      shards) more=() ;;
      replicas) more=(--set parallel.replicate=2) ;;
      backward) more=(--set optimizer.in_backward=true --set train.clip_norm=0.0) ;;
      nvme)
        [ "$(stat -f -c %T "$WORK")" != tmpfs ] || { skip "$how" "the tests' directory is in memory (tmpfs)"; continue; }
        more=(--set parallel.offload=nvme --set "parallel.offload_dir=$WORK/disk") ;;
    esac
    mixed $how.whole "${more[@]}"
    check_eq "$how: a tensor group on unequal machines trains" 0 $?
    check_match "$how: one line names both ranks and their machines" \
      'rank 3: computes with cpu .* rows base, .*, rank 2 of its tensor group with cpu .*: what is not split is copied in every step' \
      "$(cat "$WORK/$how.whole.log")"
    mixed $how.parts "${more[@]}" --set train.steps=10 && mixed $how.parts "${more[@]}"
    check_eq "$how: so does one that goes on from step 10" "0 1" \
      "$? $(grep -c '"event": *"resume".*"step": *10' "$WORK/runs/$how.parts/events.jsonl")"
    check_eq "$how: every figure is bit-identical" "$(figures "$WORK/runs/$how.whole")" "$(figures "$WORK/runs/$how.parts")"
    check_eq "$how: and so are the final weights" "$(payloads "$WORK/runs/$how.whole/checkpoints/step-00000020")" \
      "$(payloads "$WORK/runs/$how.parts/checkpoints/step-00000020")"
  done
  check_eq "on equal machines no line says so" 0 "$(grep -c 'of its tensor group' "$WORK/tensor.log")"
else
  skip "a tensor group on unequal machines" "this CPU has the base set only"
fi
