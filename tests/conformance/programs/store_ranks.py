"""Every rank leaves a key and reads all others'; the first generation then fails, and the second must see none of it."""
import os
import sys
from datetime import timedelta

import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
generation = os.environ["TORCHELASTIC_RESTART_COUNT"]
store = dist.TCPStore(
    os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=rank == 0, timeout=timedelta(seconds=120)
)
older = store.check([f"from {rank} in 0"])
store.set(f"from {rank} in {generation}", str(rank))
values = [store.get(f"from {other} in {generation}") for other in range(world)]
store.barrier("all have read", world)
right = not older and values == [str(other).encode() for other in range(world)]
if right:
    os.write(1, f"passed: generation {generation}\n".encode())  # in one piece, while other ranks print too
store.barrier("all have said so", world)
sys.exit(0 if right and generation == "1" else 1)
