#!/usr/bin/env python3
"""The cases of PyTorch's own FSDP2 tests, small: one fp64 reference a case, for tests/unit/parity/.

    python tests/parity/fsdp2_reference.py [CASE...]           write reference/fsdp2/CASE.txt
    python tests/parity/fsdp2_reference.py --check [CASE...]   run FSDP2 live and hold it against what is stored

A case is a model, data and an optimizer; how it is sharded is not part of it, so that one reference serves every
world size, mesh and mode. The reference itself is PyTorch without sharding, in fp64. It also has how far
PyTorch's sharded bfloat16 training is from it, where the case has that: ours may be 1.25 times as far plus 1e-3.
Weights are counter.py's; inputs are formulas that tests/unit/parity/case.c has too.
"""

import argparse
import math
import os
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import fnmatch

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

import counter
import reference

STEPS, GLOBAL_BATCH, SEED = 10, 24, 1234
OUT = reference.HERE / "reference" / "fsdp2"

TINY = {"kind": "tiny", "layers": 2, "dim": 12, "heads": 3, "vocab": 19, "seq": 6, "hidden": 20}
MLP = {"kind": "linears", "widths": "16 20 8"}
ADAMW = {"lr": 1e-2, "eps": 1e-8, "decay": 0.1, "clip_norm": 0.2, "clip_order": 2.0}
CASES = {
    # linear shapes of test_fully_shard_training: a dimension that no world size divides, fewer rows than ranks
    "linears-a": {"kind": "linears", "widths": "16 15 8", **ADAMW, "clip_norm": 0.1},
    "linears-b": {"kind": "linears", "widths": "7 15 3", **ADAMW, "clip_norm": 0.1},
    "linears-c": {"kind": "linears", "widths": "16 17 8", **ADAMW, "clip_norm": 0.1},
    "transformer": {**TINY, "layers": 3, "hidden": 16, **ADAMW},
    "twice": {**TINY, "visits": 2, **ADAMW},
    "tied": {**TINY, "tied": 1, **ADAMW},
    "rms": {**TINY, "rms": 1, **ADAMW},
    "biases": {**TINY, "trains": "*.bias", **ADAMW},
    # embeddings and the first block learn nothing, and nothing before what learns needs a gradient
    "leading": {**TINY, "layers": 3, "trains": "layers.[12]*", **ADAMW},
    # the second half of a step's samples goes past a part of the second block: ranks that have only such do not use it
    "unused": {**TINY, "skips": 1, **ADAMW},
    "groups": {**TINY, "group": "*.bias 2e-2 0.0", **ADAMW},
    # what two and four ranks divide between them, head by head and feature by feature
    "mlp": {**MLP, **ADAMW, "clip_norm": 0.1},
    "tensor": {**TINY, "heads": 4, **ADAMW},
    # other orders of the norm, which are clipped to other values; of what is split, over shard x tensor, too
    **{f"{prefix}clip-{order:g}": {**model, **ADAMW, "clip_order": order, "clip_norm": norm}
       for prefix, model, norms in (("", TINY, (2.0, 0.1, 0.02)), ("mlp-", MLP, (1.0, 0.05, 0.02)),
                                    ("tensor-", {**TINY, "heads": 4}, (2.0, 0.1, 0.02)))
       for order, norm in zip((1.0, 3.0, math.inf), norms)},
}
# with errors of bfloat16, in these worlds; what is to be split over ranks is: (world, ranks that split)
MIXED = {"linears-a": [(1, 1), (2, 1), (4, 1)], "transformer": [(1, 1), (2, 1), (4, 1)],
         "rms": [(1, 1), (2, 1), (3, 1), (4, 1)],
         "mlp": [(2, 2), (4, 2), (8, 4)], "tensor": [(2, 2), (4, 2), (8, 4)]}
GRADIENTS = ("linears-a", "linears-b", "linears-c", "transformer", "twice", "tied", "rms", "unused", "biases", "mlp", "tensor")


class Linears(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.a, self.b = nn.Linear(widths[0], widths[1]), nn.Linear(widths[1], widths[2])

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


class SkippingBlock(reference.Block):
    skips = False

    def forward(self, x):
        return x + self.attention(self.attention_norm(x)) if self.skips else super().forward(x)


class Tiny(reference.Transformer):
    def __init__(self, case):
        super().__init__({"model.dim": case["dim"], "model.heads": case["heads"], "model.vocab": case["vocab"],
                          "model.seq": case["seq"], "model.layers": case["layers"], "model.causal": True,
                          "model.norm": "rmsnorm" if case.get("rms") else "layernorm"})
        self.visits = case.get("visits", 1)
        for layer in self.layers:
            layer.feed_forward.w1 = nn.Linear(case["dim"], case["hidden"])
            layer.feed_forward.w2 = nn.Linear(case["hidden"], case["dim"])
        if case.get("tied"):
            self.output.weight = self.tok_embeddings.weight
        if case.get("skips"):
            self.layers[1].__class__ = SkippingBlock

    def forward(self, tokens):
        h = self.tok_embeddings(tokens) + self.pos_embeddings(torch.arange(tokens.shape[1]))
        for _ in range(self.visits):
            for layer in self.layers:
                h = layer(h)
        return self.output(self.norm(h))


def build(case, dtype):
    model = Linears([int(w) for w in case["widths"].split()]) if case["kind"] == "linears" else Tiny(case)
    model = model.to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(counter.initial_weight(SEED, name, tuple(parameter.shape))))
            parameter.requires_grad_(fnmatch.fnmatchcase(name, case.get("trains", "*")))
    return model


def text(case, place):
    place %= 40
    return (place * place * 7 + place * 3 + 1) % case["vocab"]


def samples(case, step):
    """Input and targets of the step's samples, each a row."""
    numbers = range(step * GLOBAL_BATCH, (step + 1) * GLOBAL_BATCH)
    if case["kind"] == "linears":
        n_in, _, n_out = (int(w) for w in case["widths"].split())
        grid = [[(i * 7 + s * 3) % 11 for i in range(n_in)] for s in numbers]
        x = np.array(grid, dtype=np.float32) * np.float32(0.2) - np.float32(1)
        return torch.from_numpy(x), torch.tensor([s * 3 % 11 % n_out for s in numbers])
    seq = case["seq"]
    tokens = torch.tensor([[text(case, s * seq + t) for t in range(seq + 1)] for s in numbers])
    return tokens[:, :-1], tokens[:, 1:]


def make_optimizer(case, model):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    pattern, rate, decay = (case.get("group") or "- 0 0").split()
    chosen = [p for n, p in named if fnmatch.fnmatchcase(n, pattern)]
    others = [p for n, p in named if not fnmatch.fnmatchcase(n, pattern)]
    groups = [{"params": others}]
    if chosen:
        groups.append({"params": chosen, "lr": float(rate), "weight_decay": float(decay)})
    return torch.optim.AdamW(groups, lr=case["lr"], betas=(0.9, 0.95), eps=case["eps"],
                             weight_decay=case["decay"])


def clip(case, parameters):
    """clip_grad_norm_ of tensors on several meshes, which it does not take: split over two dimensions, and over one."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([reference.full(torch.linalg.vector_norm(g, case["clip_order"])) for g in gradients])
    norm = torch.linalg.vector_norm(norms, case["clip_order"])
    for gradient in gradients:
        gradient.mul_(min(1.0, case["clip_norm"] / (norm.item() + 1e-6)))
    return norm


def backward(model, parts, each):
    """Of the sum of several forwards' losses; or of each, which FSDP2 prefetches for until it is told that one is the last."""
    for number, part in enumerate(parts if each else [sum(parts)], 1):
        if each:
            model.set_is_last_backward(number == len(parts))
        part.backward()


def train(case, model, rank=0, world=1, data=None, forwards=1, each=False, factor=1):
    """Losses, norms, and the raw gradients of step 1, as reference.train(); `data` is the group of ranks with samples of their
    own, where others have the same. A rank's share may be run in several forwards before a backward. Losses times `factor`
    make up for gradients that are divided by as much more."""
    optimizer = make_optimizer(case, model)
    losses, norms, gradients = [], [], {}
    share = GLOBAL_BATCH // world // forwards
    for step in range(STEPS):
        inputs, targets = samples(case, step)
        loss, parts = 0, []
        for part in range(rank * forwards, (rank + 1) * forwards):
            mine = slice(part * share, (part + 1) * share)
            x = inputs[mine]
            if x.is_floating_point():
                x = x.to(next(model.parameters()).dtype)
            if case.get("skips"):
                model.layers[1].skips = 2 * part * share >= GLOBAL_BATCH
            logits = model(x)
            parts.append(F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets[mine].flatten(), reduction="sum"))
            loss = loss + parts[-1].detach()
        backward(model, [part * factor * world / targets.numel() for part in parts], each)
        if step == 0:
            gradients = {n: reference.full(p.grad) for n, p in model.named_parameters() if p.grad is not None}
        total = loss.detach().double()
        if world > 1:
            dist.all_reduce(total, group=data)
        losses.append(total.item() / targets.numel())
        if data is None or case["kind"] == "linears":  # all of its parameters are on one mesh, whole or of two dimensions
            norm = nn.utils.clip_grad_norm_(model.parameters(), case["clip_norm"], norm_type=case["clip_order"])
        else:
            norm = clip(case, list(model.parameters()))
        norms.append(reference.full(norm).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms, gradients


def shard(case, model, mesh, reshard, policy=None, offload=False):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    policy = policy or {}
    shards = dict(mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False) if offload else OffloadPolicy())
    options = dict(shards, reshard_after_forward=reshard, mp_policy=MixedPrecisionPolicy(**policy))
    root = dict(shards, mp_policy=MixedPrecisionPolicy(**policy, **({"output_dtype": torch.float32} if policy else {})))
    if case["kind"] == "linears":
        fully_shard(model.a, **options)
        fully_shard(model.b, **options)
    else:
        for layer in model.layers:
            fully_shard(layer, **options)
        if case.get("tied"):
            fully_shard([model.tok_embeddings, model.norm, model.output], **options)
    fully_shard(model, **root)
    if case.get("skips"):
        model.set_reduce_scatter_unused_params(True)


def divide(model, factor):
    """By a factor of one's own: gloo has no reduction that multiplies before it adds, so each unit sums and divides itself."""
    from torch.distributed.fsdp import FSDPModule

    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            unit.set_force_sum_reduction_for_comms(True)
            unit.set_gradient_divide_factor(factor)


class SplitAttention(reference.Attention):
    """Some of the heads: what the products give has their features alone."""

    def forward(self, x):
        batch, seq, _ = x.shape
        q, k, v = (w(x).view(batch, seq, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.wo(y.transpose(1, 2).reshape(batch, seq, -1))


def split(case, model, mesh):
    """Tensor parallelism of what a case has to split."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if case["kind"] == "linears":
        parallelize_module(model, mesh, {"a": ColwiseParallel(), "b": RowwiseParallel()})
        return
    for layer in model.layers:
        parallelize_module(layer, mesh, {"attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(),
                                         "attention.wv": ColwiseParallel(), "attention.wo": RowwiseParallel(),
                                         "feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel()})
        layer.attention.__class__ = SplitAttention
        layer.attention.heads //= mesh.size()


def fsdp2_rank(rank, world, case, how, store, out):
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    tensor = how.get("tensor", 1)
    shape, names = ((2, world // 2), ("replicate", "shard")) if how.get("hsdp") else ((world,), ("shard",))
    if tensor > 1:
        shape, names = (world // tensor, tensor), ("shard", "tensor")
    model = build(case, torch.float32)
    mesh, data = init_device_mesh("cpu", shape, mesh_dim_names=names), None
    if tensor > 1:
        split(case, model, mesh["tensor"])
        mesh = mesh["shard"]
        data = mesh.get_group()
    shard(case, model, mesh, how.get("reshard"), how.get("policy"), how.get("offload", False))
    factor = how.get("factor", 1)
    if factor != 1:
        divide(model, float(factor * world))
    result = train(case, model, rank // tensor, world // tensor, data, how.get("forwards", 1), how.get("each", False), factor)
    if rank == 0:
        torch.save(result, out)
    # Gloo's threads may outlive a group and bring down a process that takes itself apart: it does not, it ends.
    dist.barrier()
    os._exit(0)


def fsdp2(case, world, **how):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "result")
        mp.start_processes(fsdp2_rank, (world, case, how, os.path.join(folder, "store"), out), nprocs=world,
                           start_method="fork")  # without importing PyTorch again
        return torch.load(out)


def bf16_errors(case, exact, worlds):
    for name in ("float32", "bfloat16"):
        for world, tensor in worlds:
            policy = dict(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, name))
            losses, _, gradients = fsdp2(case, world, policy=policy, tensor=tensor)
            yield f"error {name} {world} losses {reference.relative(losses, exact[0]):.3e}"
            for parameter, want in exact[2].items():
                error = float((gradients[parameter] - want).norm() / want.norm())
                yield f"error {name} {world} {parameter} {error:.3e}"


def write(name, case):
    exact = train(case, build(case, torch.float64), forwards=2 if case.get("skips") else 1)
    losses, norms, gradients = exact
    assert losses[-1] < losses[0], (name, "nothing is learnt", losses)
    assert max(norms) > case["clip_norm"], (name, "nothing was ever clipped", norms)
    errors = list(bf16_errors(case, exact, MIXED.get(name, ())))
    with open(OUT / f"{name}.txt", "w") as file:
        print(*(line.replace("/reference.py", "/fsdp2_reference.py") for line in reference.HEAD), sep="\n", file=file)
        for key, value in case.items():
            print(f"set {key} {value}", file=file)
        for step, (loss, norm) in enumerate(zip(losses, norms), 1):
            print(f"step {step} {loss:.15g} {norm:.15g}", file=file)
        for line in errors:
            print(line, file=file)
        for parameter, gradient in gradients.items() if name in GRADIENTS else ():
            print(f"gradient {parameter} {gradient.numel()}", file=file)
            for row in gradient.reshape(gradient.shape[0] if gradient.dim() > 1 else 1, -1):
                print(*(f"{float(x):.7g}" for x in row), file=file)
    size = os.path.getsize(OUT / f"{name}.txt")
    assert size <= 65536, (name, size)
    print(f"{name}: {size} bytes, loss {losses[0]:.4f} -> {losses[-1]:.4f}, norms {min(norms):.3g} to {max(norms):.3g}",
          flush=True)


def stored(name):
    """Losses, norms and gradients of a file."""
    losses, norms, gradients, into = [], [], {}, None
    for line in open(OUT / f"{name}.txt"):
        words = line.split()
        if words[0] == "step":
            losses.append(float(words[2]))
            norms.append(float(words[3]))
        elif words[0] == "gradient":
            into = gradients.setdefault(words[1], [])
        elif into is not None:
            into += map(float, words)
    return losses, norms, {n: torch.tensor(v, dtype=torch.float64) for n, v in gradients.items()}


def stored_errors(name):
    words = (line.split() for line in open(OUT / f"{name}.txt"))
    return {tuple(w[1:4]): float(w[4]) for w in words if w[0] == "error"}


def check(name, case):
    want = stored(name)
    hows = [{}]
    if name in ("transformer", "twice", "linears-a"):
        hows += [{"forwards": 2}, {"forwards": 2, "each": True}]
    if name == "transformer":
        hows += [{"reshard": False}, {"reshard": 2}, {"hsdp": True}, {"reshard": False, "forwards": 2}, {"offload": True},
                 {"factor": 2}]
    if name.split("-")[0] in ("mlp", "tensor"):
        hows = [{"tensor": 2}] + ([{"tensor": 4}] if name in MIXED else [])
    for how in hows:
        got = fsdp2(case, 4 if how.get("hsdp") or how.get("reshard") == 2 or how.get("tensor") else 2, **how)
        worst = max([float((got[2][n].flatten() - g).norm() / g.norm()) for n, g in want[2].items()] or [0])
        far = (reference.relative(got[0], want[0]), reference.relative(got[1], want[1]), worst)
        print(f"{name} {how or 'default'}: losses {far[0]:.1e}, norms {far[1]:.1e}, gradients {far[2]:.1e}", flush=True)
        assert far[0] <= 2e-6 and far[1] <= 5e-6 and far[2] <= 5e-6, (name, how, far)
    if name in MIXED:
        before = stored_errors(name)
        of_two = [way for way in MIXED[name] if way[0] == 2]
        for line in bf16_errors(case, train(case, build(case, torch.float64)), of_two):
            words = line.split()
            assert abs(float(words[4]) / before[tuple(words[1:4])] - 1) < 0.25, (name, line, before[tuple(words[1:4])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in options.cases:
        (check if options.check else write)(name, CASES[name])


if __name__ == "__main__":
    main()
