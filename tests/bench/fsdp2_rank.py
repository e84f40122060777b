"""One rank of PyTorch FSDP2 over gloo, for bench_train: a line "step" runs a training step and writes its start, end,
CPU time and the largest RssAnon + RssShmem so far, sampled where fsdp-train samples: before and after backward, and at the end."""
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

rank, world, store, dtype = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
layers, dim, heads, seq, vocab, batch = (int(a) for a in sys.argv[5:11])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.w1, self.w2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        n = self.attention_norm(x)
        q, k, v = (w(n).view(*n.shape[:2], heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        x = x + self.wo(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n.shape))
        return x + self.w2(F.gelu(self.w1(self.ffn_norm(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def memory():
    with open("/proc/self/status") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith(("RssAnon", "RssShmem")))


def step():
    """What memory was at its highest."""
    tokens = torch.randint(0, 256, (batch, seq + 1))
    loss = F.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
    peak = memory()
    loss.backward()
    peak = max(peak, memory())
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return max(peak, memory())


warnings.simplefilter("ignore")
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))
model = Transformer()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
policy = policy if dtype == "bfloat16" else MixedPrecisionPolicy()
for layer in model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
peak = 0
print("ready", flush=True)
for _ in sys.stdin:
    start = time.clock_gettime(time.CLOCK_MONOTONIC)
    worked = time.process_time()
    peak = max(peak, step())
    print(start, time.clock_gettime(time.CLOCK_MONOTONIC), time.process_time() - worked, peak, flush=True)
dist.destroy_process_group()
