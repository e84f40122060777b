"""Trains the same model by DDP and by FSDP2 and prints every loss as the bits it has.

train.py DIR: DIR takes the checkpoints. The flow of the FSDP2 part is that of PyTorch's own example: a model on the
meta device, sharded layer by layer, given memory and values, trained with explicit prefetching, gradients clipped,
saved by DCP; then a second model is loaded from that checkpoint and both go on: their losses must be the same bits.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from transformer import Transformer, build_sharded, loss_of

STEPS = 6
directory = sys.argv[1]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def train(title, model, optimizer, first, last):
    """Steps first..last-1; the mean loss of all ranks, each printed as its own bits. Returns them."""
    losses = []
    for step in range(first, last):
        loss = loss_of(model, step, rank)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append((mean / size).item().hex())
        if rank == 0:
            print(f"loss: {title} {step} {losses[-1]}", flush=True)
    return losses


def falls(losses):
    assert float.fromhex(losses[-1]) < float.fromhex(losses[0]), losses


def train_ddp():
    torch.manual_seed(1)
    model = DistributedDataParallel(Transformer())
    losses = train("ddp", model, torch.optim.AdamW(model.parameters(), lr=1e-2), 0, STEPS)
    falls(losses)
    if rank == 0:
        print("passed: ddp", flush=True)


def build_prefetching(**options):
    model, optimizer = build_sharded(**options)
    assert isinstance(model, FSDPModule) and all(isinstance(p, DTensor) for p in model.parameters())
    model.layers[0].set_modules_to_forward_prefetch([model.layers[1]])
    model.layers[1].set_modules_to_backward_prefetch([model.layers[0]])
    return model, optimizer


def train_fsdp2():
    model, optimizer = build_prefetching()
    losses = train("fsdp2", model, optimizer, 0, STEPS)
    falls(losses)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"weights": weights, "moments": moments}, checkpoint_id=f"{directory}/checkpoint")
    whole = train("fsdp2", model, optimizer, STEPS, 2 * STEPS)

    model, optimizer = build_prefetching()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # so that only the checkpoint can bring the values
    weights, moments = get_state_dict(model, optimizer)
    state = {"weights": weights, "moments": moments}
    dcp.load(state, checkpoint_id=f"{directory}/checkpoint")
    set_state_dict(model, optimizer, model_state_dict=state["weights"], optim_state_dict=state["moments"])
    resumed = train("fsdp2-resumed", model, optimizer, STEPS, 2 * STEPS)
    assert resumed == whole, (resumed, whole)
    if rank == 0:
        print("passed: fsdp2\npassed: dcp", flush=True)


def train_fsdp2_mixed():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model, optimizer = build_prefetching(mp_policy=policy)
    falls(train("fsdp2-bf16", model, optimizer, 0, STEPS))
    if rank == 0:
        print("passed: fsdp2 in bf16", flush=True)


torch.set_num_threads(1)  # sums depend on the number of threads, and launchers may differ in what they give
dist.init_process_group("gloo")
train_ddp()
train_fsdp2()
train_fsdp2_mixed()
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # a thread of PyTorch that still holds a tensor when Python ends aborts it, now and then, under torchrun too
