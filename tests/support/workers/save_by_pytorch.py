"""One model as PyTorch and safetensors save it, in every way that fsdprun reads.

usage: fsdprun --nproc-per-node 3 save_by_pytorch.py STEP_DIRECTORY OUT
Reads the parameters of one of our step directories and writes:
  OUT/plain.safetensors     safetensors.torch.save_file
  OUT/half.safetensors      the same in float16, and OUT/half32.safetensors: these float16 values in float32
  OUT/whole/                HuggingFaceStorageWriter: whole tensors, one file, and its index
  OUT/files/                the same in two files
  OUT/sharded/              save_distributed: shards of all ranks, cut along rows and, of some, along columns
  OUT/consolidated/         enable_consolidation: whole tensors, with the shards in consolidated/sharded/
  OUT/hub/                  a cache of Hugging Face's hub, as huggingface_hub lays it out: links to files of their hashes
"""
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def read(step):
    reader = HuggingFaceStorageReader(step)
    known = reader.read_metadata().state_dict_metadata
    state = {n: torch.empty(m.size, dtype=m.properties.dtype) for n, m in known.items() if not n.startswith("optimizer.")}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


def save_alone(state, out):
    half = {name: tensor.half() for name, tensor in state.items()}
    save_file(state, f"{out}/plain.safetensors", metadata={f"key {i}": "x" for i in range(100)})
    save_file(half, f"{out}/half.safetensors")
    save_file({name: tensor.float() for name, tensor in half.items()}, f"{out}/half32.safetensors")
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(f"{out}/whole"), no_dist=True)
    files = {name: 1 + i % 2 for i, name in enumerate(state)}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(f"{out}/files", fqn_to_index_mapping=files), no_dist=True)
    os.makedirs(f"{out}/hub/blobs")
    os.makedirs(f"{out}/hub/snapshots/4f2a")
    save_file(state, f"{out}/hub/blobs/9c81")
    os.symlink("../../blobs/9c81", f"{out}/hub/snapshots/4f2a/model.safetensors")


def main():
    warnings.simplefilter("ignore")
    step, out = sys.argv[1:]
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = read(step)
    if dist.get_rank() == 0:
        save_alone(state, out)
    dist.barrier()
    # Columns of every other matrix. Three ranks divide few sizes of the test's model.
    cut = [1 if tensor.dim() > 1 and i % 2 else 0 for i, tensor in enumerate(state.values())]
    shards = {n: distribute_tensor(t, mesh, [Shard(d)]) for (n, t), d in zip(state.items(), cut)}
    dcp.save(shards, storage_writer=HuggingFaceStorageWriter(f"{out}/sharded", save_distributed=True))
    dcp.save(shards, storage_writer=HuggingFaceStorageWriter(f"{out}/consolidated", save_distributed=True,
                                                             enable_consolidation=True))
    dist.destroy_process_group()


main()
