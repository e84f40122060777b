"""GPT-2 trained by PyTorch's FSDP2 on one GPU, as its users make it fast: blocks and loss compiled, bfloat16, its
scaled_dot_product_attention, fused AdamW, and a vocabulary that is padded to a multiple of 64.

Prints: median tokens/s, peak GiB allocated, median milliseconds of a step in which the host does not wait for the GPU, version. Under
torchrun it is as many ranks. --device cpu, with --size tiny, tries the script where there is no GPU: gloo, and no memory to speak of.
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

# Layers, width, heads, vocabulary, sequence.
SIZES = {
    "tiny": (2, 64, 2, 256, 64),
    "124m": (12, 768, 12, 50257, 1024),
    "355m": (24, 1024, 16, 50257, 1024),
    "774m": (36, 1280, 20, 50257, 1024),
    "1558m": (48, 1600, 25, 50257, 1024),
}


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, seq, dim = x.shape
        q, k, v = (
            t.view(batch, seq, self.heads, dim // self.heads).transpose(1, 2)
            for t in self.attn(self.ln_1(x)).split(dim, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, seq, dim))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


def loss_of(x, weight, targets):
    return F.cross_entropy(F.linear(x, weight).float().flatten(0, 1), targets.flatten())


class GPT2(nn.Module):
    def __init__(self, layers, dim, heads, vocab, seq):
        super().__init__()
        self.loss_of = loss_of
        vocab = (vocab + 63) // 64 * 64
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.loss_of(self.ln_f(x), self.head.weight, targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="124m")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--data", required=True, help="a file of tokens, one byte each")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    seq = SIZES[args.size][4]
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=world)
    mesh = init_device_mesh(args.device, (world,))
    torch.manual_seed(1234)
    model = GPT2(*SIZES[args.size]).to(args.device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if not args.no_compile:
        model.loss_of = torch.compile(loss_of)
    for block in model.blocks:
        if not args.no_compile:
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    with open(args.data, "rb") as data:
        tokens = torch.frombuffer(bytearray(data.read(args.batch * (seq + 1))), dtype=torch.uint8)
    tokens = tokens.view(args.batch, seq + 1).long().to(args.device)
    wait = torch.cuda.synchronize if on_gpu else (lambda: None)
    times, host_times = [], []
    for _ in range(args.steps):
        wait()
        began = time.perf_counter()
        model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        host_times.append(time.perf_counter() - began)
        wait()
        times.append(time.perf_counter() - began)
    if rank == 0:
        speed = world * args.batch * seq / statistics.median(times[3:])
        peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0
        host_ms = statistics.median(host_times[3:]) * 1000
        print(f"{speed:.0f} {peak:.3f} {host_ms:.2f} torch-{torch.__version__}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
