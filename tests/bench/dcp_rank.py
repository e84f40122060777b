"""PyTorch's distributed checkpoint, for bench_checkpoint: reads "save DIR" and "load DIR" lines, writes the seconds."""
import sys
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp

warnings.simplefilter("ignore")
torch.set_num_threads(1)
n_tensors, elements = int(sys.argv[1]), int(sys.argv[2])
state = {f"layers.{i}.weight": torch.ones(elements) for i in range(n_tensors)}
print("ready", flush=True)
for line in sys.stdin:
    verb, directory = line.split()
    start = time.monotonic()
    if verb == "save":
        dcp.save(state, storage_writer=dcp.FileSystemWriter(directory, sync_files=True), no_dist=True)
    else:
        dcp.load(state, storage_reader=dcp.FileSystemReader(directory), no_dist=True)
    print(time.monotonic() - start, flush=True)
