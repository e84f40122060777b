#!/usr/bin/env python3
"""Write reference/fsdp2/schedule.txt: in what order PyTorch's FSDP2 gathers, frees and reduces its groups.

    python tests/parity/fsdp2_schedule.py [--out FILE] [SCHEDULE...]

As its own test_fully_shard_comm.py does, the methods of FSDPParamGroup are patched to note what they did. A line per
schedule and micro-step: U is an all-gather that was issued, R parameters freed, PB a reduce-scatter and AR the
all-reduce behind it, | the end of forward; a group is named by its first module. tests/unit/parity/test_schedule.c
expects the same of our plan.
"""

import argparse
import functools
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import fsdp2_reference as cases
import reference

WAYS = {
    # name: (case, world, what differs from the defaults)
    "default": ("transformer", 2, {}),
    "reshard-true": ("transformer", 2, {"reshard": True, "reshard_root": True}),
    "reshard-false": ("transformer", 2, {"reshard": False, "reshard_root": False}),
    "reshard-to-2": ("transformer", 4, {"reshard": 2}),
    "root-only": ("transformer", 2, {"groups": "root"}),
    "nested": ("transformer", 2, {"groups": "nested"}),
    "lists": ("transformer", 2, {"groups": "lists"}),
    "prefetch-2": ("transformer", 2, {"prefetch": 2}),
    "recompute": ("transformer", 2, {"recompute": True}),
    "hybrid": ("transformer", 4, {"hsdp": True}),
    "accumulate-last": ("transformer", 2, {"micro": 3, "sync": "last"}),
    "accumulate-every": ("transformer", 2, {"micro": 3}),
    "accumulate-kept": ("transformer", 2, {"micro": 3, "sync": "last", "reshard": False, "keep": True}),
    "hybrid-deferred": ("transformer", 4, {"micro": 3, "hsdp": True, "defer": True}),
    "twice": ("twice", 2, {}),
    "twice-reshard-false": ("twice", 2, {"reshard": False, "reshard_root": False}),
    "two-forwards": ("transformer", 2, {"forwards": 2}),
    "two-forwards-reshard-true": ("transformer", 2, {"forwards": 2, "reshard": True, "reshard_root": True}),
    "two-forwards-reshard-false": ("transformer", 2, {"forwards": 2, "reshard": False, "reshard_root": False}),
    "two-forwards-reshard-to-2": ("transformer", 4, {"forwards": 2, "reshard": 2}),
    "two-forwards-nested": ("transformer", 2, {"forwards": 2, "groups": "nested"}),
    "two-forwards-recompute": ("transformer", 2, {"forwards": 2, "recompute": True}),
    "two-forwards-twice": ("twice", 2, {"forwards": 2}),
    "two-forwards-leading": ("leading", 2, {"forwards": 2}),
    "two-forwards-hybrid": ("transformer", 4, {"forwards": 2, "hsdp": True}),
    "two-backwards": ("transformer", 2, {"forwards": 2, "each": True}),
    "two-backwards-last": ("transformer", 2, {"forwards": 2, "each": True, "sync": "last"}),
    "two-backwards-reshard-true": ("transformer", 2,
                                   {"forwards": 2, "each": True, "reshard": True, "reshard_root": True}),
    "two-backwards-reshard-false": ("transformer", 2,
                                    {"forwards": 2, "each": True, "reshard": False, "reshard_root": False}),
    "two-backwards-kept": ("transformer", 2,
                           {"forwards": 2, "each": True, "sync": "last", "reshard": False, "keep": True}),
    "two-backwards-nested": ("transformer", 2, {"forwards": 2, "each": True, "groups": "nested"}),
    "tied": ("tied", 2, {}),
    "frozen": ("biases", 2, {}),
    "frozen-leading": ("leading", 2, {}),
    "frozen-leading-reshard-true": ("leading", 2, {"reshard": True, "reshard_root": True}),
    "frozen-leading-kept": ("leading", 2, {"reshard": False, "reshard_root": False}),
    "frozen-leading-nested": ("leading", 2, {"groups": "nested"}),
    "tensor": ("tensor", 4, {"tensor": 2}),
}


class Events:
    """What the groups of one model after the other did, in words; the methods are patched once."""

    def __init__(self):
        from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups

        self.words, self.names, self.current = [], {}, []
        self.wrap(groups, "unshard", self.gathered)
        self.wrap(groups, "_to_sharded", self.freed)
        self.wrap(groups, "_to_sharded_post_forward", self.freed)
        self.wrap(groups, "post_backward", lambda group, before: None)
        self.note_reductions(groups)

    def watch(self, model):
        self.words.clear()
        self.names = {module: name or "(root)" for name, module in model.named_modules()}

    def take(self):
        line = " ".join(self.words)
        self.words.clear()
        return line

    def note(self, kind, group):
        name = self.names[group.modules[0]].replace("._checkpoint_wrapped_module", "")
        self.words.append(f"{kind}:{name}")

    def wrap(self, groups, method, note):
        original = getattr(groups.FSDPParamGroup, method)

        @functools.wraps(original)
        def wrapped(group, *args, **kwargs):
            before = group._all_gather_result is not None, group.is_unsharded
            self.current.append(group)
            result = original(group, *args, **kwargs)
            self.current.pop()
            note(group, before)
            return result

        setattr(groups.FSDPParamGroup, method, wrapped)

    def gathered(self, group, before):
        if not before[0] and group._all_gather_result is not None:
            self.note("U", group)

    def freed(self, group, before):
        if before[1]:
            self.note("R", group)

    def note_reductions(self, groups):
        reduce = groups.foreach_reduce

        @functools.wraps(reduce)
        def noted(*args, **kwargs):
            group = self.current[-1]
            self.note("PB", group)
            if group.mesh_info.__class__.__name__.startswith("HSDP") and group.all_reduce_grads:
                self.note("AR", group)
            return reduce(*args, **kwargs)

        groups.foreach_reduce = noted


def shard(case, model, mesh, way):
    from torch.distributed.fsdp import fully_shard

    options = dict(mesh=mesh, reshard_after_forward=way.get("reshard"))
    grouping = way.get("groups")
    layers = list(model.layers)
    if grouping == "lists":
        fully_shard(layers[:2], **options)
        layers = layers[2:]
    for layer in [] if grouping == "root" else layers:
        if grouping == "nested":
            fully_shard(layer.attention, **options)
            fully_shard(layer.feed_forward, **options)
        fully_shard(layer, **options)
    if grouping == "lists" or case.get("tied"):
        fully_shard([model.tok_embeddings, model.norm, model.output], **options)
    fully_shard(model, mesh=mesh, reshard_after_forward=way.get("reshard_root"))
    depth = way.get("prefetch", 0)
    for i, layer in enumerate(model.layers if depth else ()):
        layer.set_modules_to_forward_prefetch(list(model.layers)[i + 1:i + 1 + depth])
        layer.set_modules_to_backward_prefetch(list(model.layers)[max(0, i - depth):i][::-1])


def set_last(model, way, last):
    if way.get("sync") == "last":
        model.set_requires_gradient_sync(last)
    if way.get("keep"):
        model.set_reshard_after_backward(last)
    if way.get("defer"):
        model.set_requires_all_reduce(last)
    if way.get("each"):
        model.set_is_last_backward(last)


def step(case, way, world, events):
    """The lines of one step of one way of sharding."""
    from torch.distributed.device_mesh import init_device_mesh

    shape, names = ((2, world // 2), ("replicate", "shard")) if way.get("hsdp") else ((world,), ("shard",))
    if way.get("tensor"):
        shape, names = (world // way["tensor"], way["tensor"]), ("shard", "tensor")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model, lines = cases.build(case, torch.float32), []
    if way.get("tensor"):
        cases.split(case, model, mesh["tensor"])
        mesh = mesh["shard"]
    if way.get("recompute"):
        for i, layer in enumerate(model.layers):
            model.layers[i] = checkpoint_wrapper(layer)
    shard(case, model, mesh, way)
    events.watch(model)
    n_micro = way.get("micro", 1)
    tokens, targets = cases.samples(case, 0)
    for m in range(n_micro):
        set_last(model, way, m + 1 == n_micro)
        losses = []
        for _ in range(way.get("forwards", 1)):
            losses.append(F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()))
            events.words.append("|")
        backwards = losses if way.get("each") else [sum(losses)]
        for b, loss in enumerate(backwards):
            if len(backwards) > 1:
                set_last(model, way, b + 1 == len(backwards))
            loss.backward()
        lines.append(events.take())
    return lines


def record(rank, world, ways, store, out):
    """All of `ways` on one world: the models come and go, the processes stay."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    events = Events()
    lines = {name: step(cases.CASES[WAYS[name][0]], WAYS[name][2], world, events) for name in ways}
    if rank == 0:
        torch.save(lines, out)
    # Gloo's threads may outlive a group and bring down a process that takes itself apart: it does not, it ends.
    dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=cases.OUT / "schedule.txt")
    parser.add_argument("ways", nargs="*", default=list(WAYS))
    options = parser.parse_args()
    head = [line.replace("/reference.py", "/fsdp2_schedule.py").replace("fp64", "fp32") for line in reference.HEAD]
    lines = {}
    for world in sorted({WAYS[name][1] for name in options.ways}):
        ways = [name for name in options.ways if WAYS[name][1] == world]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "lines")
            mp.start_processes(record, (world, ways, os.path.join(folder, "store"), out), nprocs=world,
                               start_method="fork")
            lines.update(torch.load(out))
    with open(options.out, "w") as file:
        print(*head, sep="\n", file=file)
        for name in options.ways:
            for m, line in enumerate(lines[name]):
                print(f"{name} {m} {line}", file=file)


if __name__ == "__main__":
    main()
