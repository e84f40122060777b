"""Trains by FSDP2, saves by DCP after every step, and loses a rank on the way: what is launched again goes on.

recover.py DIR STEPS PLACE RANK: in the first life of the world rank RANK kills itself by SIGKILL in step 5, at PLACE:
  forward    before the step         backward   between loss and gradients
  save       while the others save   saved      after the step and its save
  never      nobody dies
DIR takes the checkpoints, `losses` (a line a step, as the bits it has) and `times` (in ns since 1970): began (rank 0 runs
its first line), killed, step (the first one of this life is done and saved), and ended.
"""

import time

BEGAN = time.time_ns()

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from transformer import build_sharded, loss_of

FATAL = 5
directory, steps, place, victim = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def note(name, text):
    with open(f"{directory}/{name}", "a") as file:
        file.write(text + "\n")


def die_if(here, step):
    if (life, here, step, rank) == (0, place, FATAL, victim):
        note("times", f"killed {time.time_ns()}")
        os.kill(os.getpid(), signal.SIGKILL)


def newest():
    """The last step whose checkpoint is complete (DCP writes .metadata last); all ranks take rank 0's word."""
    complete = [0]
    if rank == 0:
        names = [name for name in os.listdir(directory) if name.startswith("step-")]
        complete = [max([int(n[5:]) for n in names if os.path.exists(f"{directory}/{n}/.metadata")], default=0)]
    dist.broadcast_object_list(complete, src=0)
    return complete[0]


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"weights": weights, "moments": moments}


torch.set_num_threads(1)
dist.init_process_group("gloo")
model, optimizer = build_sharded()
done = newest()
if done > 0:
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=f"{directory}/step-{done}")
    set_state_dict(model, optimizer, model_state_dict=state["weights"], optim_state_dict=state["moments"])
first = done + 1
for step in range(first, steps + 1):
    die_if("forward", step)
    loss = loss_of(model, step, rank)
    die_if("backward", step)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    die_if("save", step)
    dcp.save(state_of(model, optimizer), checkpoint_id=f"{directory}/step-{step}")
    if rank == 0:
        note("losses", f"{step} {(mean / size).item().hex()}")
        if step == first:
            note("times", f"began {BEGAN}\nstep {time.time_ns()}")
    die_if("saved", step)
dist.barrier()  # nobody's threads still hold a tensor when Python ends: PyTorch's abort the process there, now and then
dist.destroy_process_group()
if rank == 0:
    note("times", f"ended {life} from {first}")
sys.stdout.flush()
os._exit(0)  # its threads bring PyTorch down at the interpreter's end, now and then, with all work done: not our subject
