"""One of our checkpoints as torch.distributed.checkpoint saves a model and its optimizer.

usage: fsdprun --nproc-per-node N save_distcp.py STEP_DIRECTORY OUT OPTIMIZER_STEP
Reads the tensors of a step directory and saves {"model": ..., "optim": ...} to OUT, as the state dicts of
torch.distributed.checkpoint.state_dict are laid out: sharded along rows over all ranks, or along columns.
"""
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

step, out, optimizer_step = sys.argv[1], sys.argv[2], float(sys.argv[3])
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
reader = HuggingFaceStorageReader(step)
known = reader.read_metadata().state_dict_metadata
tensors = {n: torch.empty(m.size, dtype=m.properties.dtype) for n, m in known.items()}
dcp.load(tensors, storage_reader=reader, no_dist=True)
model, states = {}, {}
for i, (name, tensor) in enumerate(sorted(tensors.items())):
    shared = distribute_tensor(tensor, mesh, [Shard(i % tensor.dim())])
    if name.startswith("optimizer."):
        _, state, parameter = name.split(".", 2)
        states.setdefault(parameter, {"step": torch.tensor(optimizer_step)})[state] = shared
    else:
        model[name] = shared
groups = [{"lr": 0.01, "params": sorted(states)}]
dcp.save({"model": model, "optim": {"state": states, "param_groups": groups}, "epoch": 3}, checkpoint_id=out)
dist.destroy_process_group()
