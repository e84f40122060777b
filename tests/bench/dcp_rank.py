"""PyTorch's distributed checkpoint, for bench_checkpoint: one of W ranks, each with tensors of its own. Reads
"save DIR", "load DIR" and "async DIR" lines, and writes the seconds; of "async", those until async_save() returns.

usage: dcp_rank.py TENSORS ELEMENTS W RANK RENDEZVOUS_FILE
"""
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

warnings.simplefilter("ignore")
torch.set_num_threads(1)
n_tensors, elements, world_size, rank = map(int, sys.argv[1:5])
dist.init_process_group("gloo", init_method="file://" + sys.argv[5], world_size=world_size, rank=rank)
state = {f"rank{rank}.layers.{i}.weight": torch.ones(elements) for i in range(n_tensors)}
print("ready", flush=True)
for line in sys.stdin:
    verb, directory = line.split()
    pending = None
    dist.barrier()
    start = time.monotonic()
    if verb == "load":
        dcp.load(state, storage_reader=dcp.FileSystemReader(directory))
    else:
        writer = dcp.FileSystemWriter(directory, sync_files=True)
        if verb == "save":
            dcp.save(state, storage_writer=writer)
        else:
            pending = dcp.async_save(state, storage_writer=writer)
    seconds = time.monotonic() - start
    if pending is not None:
        pending.result()
    print(seconds, flush=True)
dist.destroy_process_group()
