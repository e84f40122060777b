"""transformers opens our exports of a GPT-2: no weight is missing or left over, and the loss is a number.

usage: read_by_transformers.py EXPORT...      the last line is "N models"
"""
import sys

import torch
from transformers import GPT2LMHeadModel


def main():
    for directory in sys.argv[1:]:
        model, info = GPT2LMHeadModel.from_pretrained(directory, output_loading_info=True)
        if info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]:
            sys.exit(f"{directory}: {info}")
        tokens = torch.arange(8)[None]
        if not torch.isfinite(model(tokens, labels=tokens).loss):
            sys.exit(f"{directory}: the loss is no number")
    print(f"{len(sys.argv) - 1} models")


main()
