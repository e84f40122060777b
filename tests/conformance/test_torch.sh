# Unmodified PyTorch programs under fsdprun: worlds of 1 to 64 ranks, env:// and tcp://, groups, meshes, DDP,
# FSDP2, DCP, and the same losses, bit for bit, as under torchrun. FSDP_TEST_WORLDS="1 2 8 64" forms larger
# worlds as well.
# Two minutes where nothing else runs.
# Nightly: torch
source tests/support/shell/harness.sh
source tests/conformance/torch.sh

# world SIZE INIT OPTIONS...: the program of first things, each of its checks as a test
world() {
  local size=$1 init=$2 name title; shift 2
  title="$size ranks by $init://"
  launched "$FSDPRUN" --nproc-per-node "$size" "$@" "$PROGRAMS/collectives.py" "$(empty_dir marks)" "$init"
  check_eq "$title: the program ends with 0" 0 $? || why
  local names=(world collectives barrier "own store")
  [ "$size" -gt 8 ] || names+=(subgroups)
  for name in "${names[@]}"; do check "$title: $name" grep -qx "passed: $name" "$WORK/out"; done
}
available_mb=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
for size in ${FSDP_TEST_WORLDS:-1 2 8}; do
  if [ "$available_mb" -lt $((320 * size)) ]; then skip "$size ranks by env://" "needs $((320 * size)) MB of memory"; else world "$size" env; fi
done
world 4 tcp
# A store of rank 0's own, where the launcher is told to keep out.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
world 3 env --standalone
unset TORCH_DISABLE_SHARE_RDZV_TCP_STORE
check_eq "without a launcher a program knows that it has none" False \
  "$("$PYTHON" -c 'import torch.distributed as d; print(d.is_torchelastic_launched())')"

# RPC finds its workers through the store as well.
launched "$FSDPRUN" --nproc-per-node 2 "$PROGRAMS/rpc.py"
check_eq "an RPC from one worker to another" "0 hello world from worker1" "$? $(cat "$WORK/out")" || why

# The same program under both launchers.
ln -s "$FSDPRUN" "$WORK/torchrun"
for size in 2 4; do
  launched "$TORCHRUN" "${by_address[@]}" --nproc-per-node "$size" "$PROGRAMS/train.py" "$(empty_dir checkpoints)"
  check_eq "$size ranks train under torchrun" 0 $? || why
  grep '^loss: ' "$WORK/out" > "$WORK/losses-of-torchrun"
  check_eq "$size ranks: torchrun's losses are all there" 30 "$(wc -l < "$WORK/losses-of-torchrun")"
  ours=$FSDPRUN; [ "$size" = 2 ] || ours=$WORK/torchrun # and once by that name
  launched "$ours" --nproc-per-node "$size" "$PROGRAMS/train.py" "$(empty_dir checkpoints)"
  check_eq "$size ranks train under fsdprun" 0 $? || why
  for name in ddp fsdp2 dcp "fsdp2 in bf16"; do
    check "$size ranks: $name" grep -qx "passed: $name" "$WORK/out"
  done
  grep '^loss: ' "$WORK/out" > "$WORK/losses-of-fsdprun"
  check "$size ranks: the losses are torchrun's, bit for bit" diff "$WORK/losses-of-torchrun" "$WORK/losses-of-fsdprun"
done
