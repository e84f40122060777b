#!/usr/bin/env python3
"""Write the reference that tests/parity/test_parity.sh holds our training against: PyTorch itself, in fp64.

    python tests/parity/reference.py [--out DIR] [--shape NAME] [--no-fsdp2]

Each shape is a model too small to matter and large enough to be wrong: rows that no world size divides, a tensor
with fewer rows than ranks, text instead of random tokens, so that the loss falls. Weights and data order are ours
(counter.py). One file per shape and optimizer holds every step's loss and gradient norm; one per shape holds each
raw gradient of step 1. PyTorch FSDP2's own fp32 deviation from the fp64 run stands in the head of each file.
"""

import argparse
import base64
import math
import os
import pathlib
import platform
import sys
import tempfile
import textwrap

sys.dont_write_bytecode = True
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

import counter

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20
GLOBAL_BATCH = 12
SEED = 1234
COMMON = {
    "run.seed": SEED, "data.tokenizer": "byte", "model.kind": "transformer", "model.vocab": 256,
    "model.dropout": 0.0, "train.steps": STEPS, "train.global_batch": GLOBAL_BATCH,
}
SHAPES = {
    # dim 14: 14 and 56 rows are not divided by 3 or 4. 187 samples: steps 16 to 20 are of the second epoch.
    "plain": {"model.layers": 2, "model.dim": 14, "model.heads": 2, "model.seq": 16, "model.causal": True,
              "data.order": "shuffled"},
    # three positions: with four ranks the last one owns no row of pos_embeddings.weight.
    "short": {"model.layers": 1, "model.dim": 10, "model.heads": 5, "model.seq": 3, "model.causal": False,
              "data.order": "sequential"},
    # 70 positions: attention never stores the probabilities (nn/attention.c, FUSED_MIN_SEQ), in tiles of which the last is
    # not full. 42 samples: nearly six epochs.
    "long": {"model.layers": 1, "model.dim": 12, "model.heads": 3, "model.seq": 70, "model.causal": True,
             "data.order": "shuffled"},
    # GPT-2 by Hugging Face's names: tied head, (in, out) weights, biases, GELU by tanh. 10 and 30 rows over 3 and 4 ranks.
    "gpt2": {"model.kind": "gpt2", "model.layers": 2, "model.dim": 10, "model.heads": 2, "model.seq": 12,
             "data.order": "shuffled"},
    # RMSNorm, which has no bias: 14 elements, over 3 and 4 ranks.
    "rms": {"model.layers": 2, "model.dim": 14, "model.heads": 2, "model.seq": 16, "model.causal": True,
            "model.norm": "rmsnorm", "data.order": "shuffled"},
}
OPTIMIZERS = {
    "adamw": {"optimizer.kind": "adamw", "optimizer.lr": 1e-2, "optimizer.betas": [0.9, 0.95],
              "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.1, "train.clip_norm": 1.0},
    "sgd": {"optimizer.kind": "sgd", "optimizer.lr": 0.2, "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 0.01, "train.clip_norm": 1.0},
}

# What a shape is trained by, where not by both.
TRAINED_BY = {"rms": ("adamw",)}

# At the common rate activations stay so small that exact GELU would pass for the one by tanh.
RATES = {("gpt2", "adamw"): 2e-2}


class Attention(nn.Module):
    def __init__(self, dim, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        for name in ("wq", "wk", "wv", "wo"):
            setattr(self, name, nn.Linear(dim, dim, bias=False))

    def forward(self, x):
        batch, seq, dim = x.shape
        q, k, v = (w(x).view(batch, seq, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        scores = q @ k.transpose(-1, -2) / math.sqrt(dim // self.heads)
        if self.causal:
            scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool).triu(1), -math.inf)
        return self.wo((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, dim))


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w1 = nn.Linear(dim, 4 * dim)
        self.w2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


def norm_of(case):
    return (nn.RMSNorm if case.get("model.norm") == "rmsnorm" else nn.LayerNorm)(case["model.dim"], eps=1e-5)


class Block(nn.Module):
    def __init__(self, case):
        super().__init__()
        dim = case["model.dim"]
        self.attention_norm = norm_of(case)
        self.attention = Attention(dim, case["model.heads"], case["model.causal"])
        self.ffn_norm = norm_of(case)
        self.feed_forward = FeedForward(dim)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, case):
        super().__init__()
        dim = case["model.dim"]
        self.tok_embeddings = nn.Embedding(case["model.vocab"], dim)
        self.pos_embeddings = nn.Embedding(case["model.seq"], dim)
        self.layers = nn.ModuleList(Block(case) for _ in range(case["model.layers"]))
        self.norm = norm_of(case)
        self.output = nn.Linear(dim, case["model.vocab"], bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens) + self.pos_embeddings(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


class Conv1D(nn.Module):
    """A product whose weight lies as (in, out)."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt2Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(dim, 3 * dim)
        self.c_proj = Conv1D(dim, dim)

    def forward(self, x):
        batch, seq, dim = x.shape
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(dim, -1))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(out.transpose(1, 2).reshape(batch, seq, dim))


class Gpt2Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.c_fc = Conv1D(dim, 4 * dim)
        self.c_proj = Conv1D(4 * dim, dim)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Gpt2Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim, eps=1e-5)
        self.attn = Gpt2Attention(dim, heads)
        self.ln_2 = nn.LayerNorm(dim, eps=1e-5)
        self.mlp = Gpt2Mlp(dim)

    def forward(self, x):
        h = x + self.attn(self.ln_1(x))
        return h + self.mlp(self.ln_2(h))


class Gpt2(nn.Module):
    def __init__(self, case):
        super().__init__()
        dim = case["model.dim"]
        self.wte = nn.Embedding(case["model.vocab"], dim)
        self.wpe = nn.Embedding(case["model.seq"], dim)
        self.h = nn.ModuleList(Gpt2Block(dim, case["model.heads"]) for _ in range(case["model.layers"]))
        self.ln_f = nn.LayerNorm(dim, eps=1e-5)

    @property
    def layers(self):
        return self.h

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def build(case, dtype):
    """The model with our initial weights: fp32 numbers, held in `dtype`."""
    model = (Gpt2 if case["model.kind"] == "gpt2" else Transformer)(case).to(dtype)
    ending_std = np.float32(0.02) / np.sqrt(np.float32(2 * case["model.layers"]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            start = counter.initial_weight(SEED, name, tuple(parameter.shape), ending_std)
            parameter.copy_(torch.from_numpy(start))
    return model


def batches(case):
    """(input, target) of every step, all ranks' samples in the order of the cursor."""
    text = np.frombuffer((HERE / "excerpt.txt").read_bytes(), dtype=np.uint8).astype(np.int64)
    seq = case["model.seq"]
    n = (len(text) - 1) // seq
    for step in range(STEPS):
        rows = []
        for position in range(step * GLOBAL_BATCH, (step + 1) * GLOBAL_BATCH):
            shuffled = case["data.order"] == "shuffled"
            sample = counter.order_sample(n, SEED, position) if shuffled else position % n
            rows.append(text[sample * seq:sample * seq + seq + 1])
        tokens = torch.from_numpy(np.stack(rows))
        yield tokens[:, :-1], tokens[:, 1:]


def make_optimizer(case, model):
    if case["optimizer.kind"] == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=case["optimizer.lr"], betas=case["optimizer.betas"],
                                 eps=case["optimizer.eps"], weight_decay=case["optimizer.weight_decay"])
    return torch.optim.SGD(model.parameters(), lr=case["optimizer.lr"], momentum=case["optimizer.momentum"],
                           weight_decay=case["optimizer.weight_decay"])


def full(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().double().clone()


def train(case, model, rank=0, world=1):
    """Losses, gradient norms of all steps, and the raw gradients of step 1."""
    optimizer = make_optimizer(case, model)
    losses, norms, gradients = [], [], {}
    share = GLOBAL_BATCH // world
    for step, (tokens, targets) in enumerate(batches(case)):
        mine = slice(rank * share, (rank + 1) * share)
        logits = model(tokens[mine]).flatten(0, 1)
        loss = F.cross_entropy(logits, targets[mine].flatten(), reduction="sum")
        (loss * world / targets.numel()).backward()
        if step == 0:
            gradients = {name: full(p.grad) for name, p in model.named_parameters()}
        total = loss.detach().double()
        if world > 1:
            dist.all_reduce(total)
        losses.append(total.item() / targets.numel())
        norms.append(full(nn.utils.clip_grad_norm_(model.parameters(), case["train.clip_norm"])).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms, gradients


def fsdp2_rank(rank, world, case, policy, store, out):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    model = build(case, torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy, output_dtype=torch.float32))
    result = train(case, model, rank, world)
    if rank == 0:
        torch.save(result, out)
    dist.destroy_process_group()


def fsdp2(case, world, **policy):
    """Losses, gradient norms and gradients of PyTorch's own sharded training."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "result")
        mp.spawn(fsdp2_rank, (world, case, policy, os.path.join(folder, "store"), out), nprocs=world)
        return torch.load(out)


def relative(got, want):
    return max(abs(g - w) / abs(w) for g, w in zip(got, want))


def fsdp2_deviation(case, reference):
    """What PyTorch's own sharded fp32 training differs by, per world size."""
    lines = []
    for world in (1, 2, 3, 4):
        losses, norms, gradients = fsdp2(case, world)
        worst = max(float((gradients[n] - g).norm() / g.norm()) for n, g in reference[2].items())
        lines.append(f"# FSDP2 fp32, W={world}: losses {relative(losses, reference[0]):.1e}, "
                     f"gradient norms {relative(norms, reference[1]):.1e}, worst gradient of step 1 {worst:.1e}")
    return lines


def text_of(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(repr, value)) + "]"
    return str(value)


def write_case(out, shape, optimizer, case, result, deviation):
    losses, norms, _ = result
    with open(out / f"{shape}.{optimizer}.txt", "w") as file:
        print(*HEAD, *deviation, sep="\n", file=file)
        for key, value in case.items():
            print(f"set {key}={text_of(value)}", file=file)
        print("# step, loss before the update, gradient norm before clipping", file=file)
        for step, (loss, norm) in enumerate(zip(losses, norms), 1):
            print(f"step {step} {loss:.15g} {norm:.15g}", file=file)


def fixed_point(values):
    """A unit, and the values as multiples of it: 24 bits in four letters of base64 each, biased by 2^23."""
    unit = max(abs(v) for v in values) / (2**23 - 1)
    return unit, base64.b64encode(b"".join((round(v / unit) + 2**23).to_bytes(3, "big") for v in values)).decode()


def write_gradients(out, shape, gradients):
    """In fixed point, since a reference is at most 64 KiB: off by 6e-8 of the largest element."""
    with open(out / f"{shape}.gradients.txt", "w") as file:
        print(*HEAD, "# raw gradients of step 1: name, elements, unit; then the elements (fixed_point())", sep="\n",
              file=file)
        for name, gradient in gradients.items():
            unit, text = fixed_point(gradient.flatten().tolist())
            print(f"gradient {name} {gradient.numel()} {unit:.17g}", *textwrap.wrap(text, 120), sep="\n", file=file)


HEAD = [
    "# Written by tests/parity/reference.py; do not edit.",
    f"# PyTorch {torch.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, fp64, CPU.",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "reference")
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--no-fsdp2", action="store_true", help="leave out FSDP2's own deviation")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for shape in options.shape or SHAPES:
        for optimizer in TRAINED_BY.get(shape, OPTIMIZERS):
            settings = OPTIMIZERS[optimizer]
            case = {**COMMON, **SHAPES[shape], **settings}
            case["optimizer.lr"] = RATES.get((shape, optimizer), case["optimizer.lr"])
            result = train(case, build(case, torch.float64))
            assert result[0][-1] < result[0][0] - 0.5, (shape, optimizer, "the loss does not fall", result[0])
            assert max(result[1]) > case["train.clip_norm"], (shape, optimizer, "nothing was ever clipped")
            deviation = [] if options.no_fsdp2 else fsdp2_deviation(case, result)
            write_case(options.out, shape, optimizer, case, result, deviation)
            print(f"{shape} {optimizer}: loss {result[0][0]:.4f} -> {result[0][-1]:.4f}, "
                  f"norms {min(result[1]):.3g} to {max(result[1]):.3g}", *deviation, sep="\n", flush=True)
        write_gradients(options.out, shape, result[2])


if __name__ == "__main__":
    main()
