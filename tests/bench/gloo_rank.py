"""One rank of gloo, for bench_comm: reads "OP BYTES TURNS" lines, does the collectives, writes start and end."""
import sys
import time

import torch
import torch.distributed as dist

rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
whole_area, part_area = torch.ones(16 << 20), torch.ones(16 << 20)
print("ready", flush=True)
for line in sys.stdin:
    op, total, turns = line.split()[0], int(line.split()[1]), int(line.split()[2])
    n = total // 4
    whole = [whole_area[i * n : (i + 1) * n] for i in range(turns)]
    part = [part_area[i * n : i * n + n // world] for i in range(turns)]
    dist.barrier()
    dist.barrier()
    start = time.clock_gettime(time.CLOCK_MONOTONIC)
    for i in range(turns):
        if op == "all_gather":
            dist.all_gather_into_tensor(whole[i], part[i])
        else:
            dist.reduce_scatter_tensor(part[i], whole[i])
    print(start, time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
dist.destroy_process_group()
