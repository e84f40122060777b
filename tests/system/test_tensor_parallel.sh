# parallel.tensor: N, through fsdprun: the losses, norms and gradients of PyTorch in fp64 at any split of four
# ranks, and a run that goes on at another split. Plans and refusals: the unit tests tensor_parallel and
# broken.
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
