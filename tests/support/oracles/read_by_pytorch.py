"""PyTorch reads our step directories: every tensor, whole, against the bytes of the shards themselves.

usage: read_by_pytorch.py STEP_DIRECTORY...      a line each: "N tensors, all equal"
"""
import glob
import json
import os
import struct
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F64": torch.float64, "U8": torch.uint8}


def shards(path):
    """(name, offsets, shape, bytes) of every tensor of a file, read without any library."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    offsets = json.loads(header.pop("__metadata__")["DCP_SHARDING_INFO"])
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        yield name, offsets[name]["saved_offsets"], entry["shape"], data[8 + length + begin:8 + length + end]


def as_bytes(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def check(directory):
    with open(os.path.join(directory, "manifest.json")) as file:
        manifest = json.load(file)
    wanted = {t["name"]: torch.full(t["shape"], 99, dtype=DTYPES[t["dtype"]]) for t in manifest["tensors"]}
    dcp.load(wanted, storage_reader=HuggingFaceStorageReader(directory), no_dist=True)
    n_elems = dict.fromkeys(wanted, 0)
    for path in glob.glob(os.path.join(directory, "*.safetensors")):
        for name, offsets, shape, data in shards(path):
            found = wanted[name]
            for dim, (first, n) in enumerate(zip(offsets, shape)):
                found = found.narrow(dim, first, n)
            n_elems[name] += found.numel()
            if as_bytes(found) != data:
                sys.exit(f"{name}: PyTorch reads other values than the shards hold")
    for name, tensor in wanted.items():
        if n_elems[name] != tensor.numel():
            sys.exit(f"{name}: the shards hold {n_elems[name]} of {tensor.numel()} elements")
    print(f"{len(wanted)} tensors, all equal")


warnings.simplefilter("ignore")
for step_directory in sys.argv[1:]:
    check(step_directory)
