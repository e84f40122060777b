"""Two workers of torch.distributed.rpc: worker0 has worker1 put a sentence together and prints it."""

import os

import torch.distributed.rpc as rpc


def answer(words):
    return f"{words} from {rpc.get_worker_info().name}"


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
if rank == 0:
    print(rpc.rpc_sync("worker1", answer, args=("hello world",)), flush=True)
rpc.shutdown()
