"""The first things a job does: form the world, reduce, wait, split. Rank 0 prints a line a check.

collectives.py DIR [env|tcp]: DIR is empty and seen by all ranks. A rank on which a check fails ends with an exception.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

directory, init = sys.argv[1], (sys.argv[2:] or ["env"])[0]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
torch.set_num_threads(1)


def equal(got, want):
    assert got == want, f"rank {rank}: got {got}, want {want}"


def passed(name):
    """Every rank is here before rank 0 says so: none of them failed."""
    dist.barrier()
    if rank == 0:
        print("passed:", name, flush=True)


def summed(value, group=None):
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def check_world():
    equal((dist.get_rank(), dist.get_world_size()), (rank, size))
    assert dist.is_torchelastic_launched()
    places = [None] * size
    dist.all_gather_object(places, (rank, int(os.environ["LOCAL_RANK"]), os.getpid()))
    equal([place[0] for place in places], list(range(size)))
    equal(len({place[2] for place in places}), size)


def check_collectives():
    equal(summed(rank + 1), size * (size + 1) / 2)


def check_barrier():
    """Nobody is let through before the last one came: whoever leaves sees the marks of all."""
    for turn in range(3):
        open(f"{directory}/{turn}-{rank}", "w").close()
        dist.barrier()
        marks = [name for name in os.listdir(directory) if name.startswith(f"{turn}-")]
        equal(len(marks), size)
    dist.monitored_barrier(timeout=timedelta(seconds=60))


def check_subgroups():
    for step in (1, 2, 3):
        members = list(range(0, size, step))
        group = dist.new_group(members)
        if rank in members:
            equal(summed(rank, group), float(sum(members)))
    group, _ = dist.new_subgroups(1)
    equal(summed(rank, group), float(rank))


def check_own_store():
    """A program that opens the store by itself, as many do to exchange an address."""
    store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=60))
    store.add("own/count", 1)
    if rank == size - 1:
        store.set("own/word", "hello")
    equal(store.get("own/word"), b"hello")
    dist.barrier()
    equal(store.add("own/count", 0), size)


if init == "tcp":
    dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=size)
else:
    dist.init_process_group("gloo")
checks = {
    "world": check_world,
    "collectives": check_collectives,
    "barrier": check_barrier,
    "subgroups": check_subgroups,
    "own store": check_own_store,
}
if size > 8:  # a group costs each of its ranks memory for each other one: in a large world that says nothing new
    del checks["subgroups"]
for name, run in checks.items():
    run()
    passed(name)
dist.destroy_process_group()
