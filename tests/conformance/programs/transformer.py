"""A transformer small enough that a step takes milliseconds, and the steps of its training. No rank appears in it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

VOCAB, DIM, HEADS, LAYERS, SEQ, BATCH = 64, 32, 4, 2, 16, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.output = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def initialise(model):
    """What a constructor does, for a model that was built without memory."""
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def build_sharded(**options):
    """Built on the meta device, sharded, then given memory and values: the model and its optimizer."""
    torch.manual_seed(1)
    with torch.device("meta"):
        model = Transformer()
    for layer in model.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    model.to_empty(device="cpu")
    initialise(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch_of(step, rank):
    """Tokens that follow one another by a fixed stride: there is something to learn, and the loss falls."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    first = torch.randint(VOCAB, (BATCH, 1), generator=generator)
    return (first + 3 * torch.arange(SEQ + 1)) % VOCAB


def loss_of(model, step, rank):
    tokens = batch_of(step, rank)
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
