"""The safetensors library reads every file of our step directories: each tensor against the bytes of the file.

usage: read_by_safetensors.py STEP_DIRECTORY...      the last line is "N files, all equal"
"""
import glob
import json
import os
import struct
import sys

import torch
from safetensors import safe_open


def main():
    n_files = 0
    for directory in sys.argv[1:]:
        for path in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
            with open(path, "rb") as file:
                data = file.read()
            (length,) = struct.unpack("<Q", data[:8])
            header = json.loads(data[8:8 + length])
            header.pop("__metadata__")
            with safe_open(path, framework="pt") as opened:
                if set(opened.keys()) != set(header):
                    sys.exit(f"{path}: other names than the header has")
                for name, entry in header.items():
                    tensor = opened.get_tensor(name).contiguous()
                    begin, end = entry["data_offsets"]
                    found = tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
                    if list(tensor.shape) != entry["shape"] or found != data[8 + length + begin:8 + length + end]:
                        sys.exit(f"{path}: {name} is read otherwise")
            n_files += 1
    print(f"{n_files} files, all equal")


main()
