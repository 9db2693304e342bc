"""Fits a line on all ranks together with torch.distributed, and checks what the ranks tell one another."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == size * (size - 1) / 2, total
if "--die" in sys.argv and rank == size - 1:
    print(f"DIES {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    x = torch.rand(32, 1)
    loss = ((model(x) - (3 * x + rank)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
seen = [torch.zeros_like(weights) for _ in range(size)]
dist.all_gather(seen, weights)
assert all(torch.equal(item, weights) for item in seen), "the ranks' weights differ"
# Each rank's data has its own offset: only together do they reach the mean of the offsets.
at_half = (weights[0] * 0.5 + weights[1]).item()
assert abs(at_half - (1.5 + (size - 1) / 2)) < 0.4, at_half
print(f"TRAINED rank {rank} of {size} on {os.uname().nodename} sum {total.item():g}", flush=True)
dist.destroy_process_group()
