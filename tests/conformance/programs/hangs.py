"""hangs.py lock|sleep|missing RANK: after a few collectives that rank hangs at the line that says "here"."""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist

kind, stuck = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group("gloo")
tensor = torch.ones(4)


def hang():
    if kind == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # here: lock
    elif kind == "sleep":
        time.sleep(100000)  # here: sleep
    else:
        dist.recv(tensor, src=1 - rank)  # here: missing


for step in range(4):
    print("step", step, flush=True)
    if step == 3 and rank == stuck:
        hang()
    dist.all_reduce(tensor)
