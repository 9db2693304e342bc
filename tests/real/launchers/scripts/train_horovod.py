"""Fits a line on all ranks together with Horovod, and checks what the ranks tell one another."""

import os
import signal
import sys
import time

import horovod.torch as hvd
import torch

hvd.init()
rank, size = hvd.rank(), hvd.size()
total = hvd.allreduce(torch.tensor([float(rank)]), op=hvd.Sum)
assert total.item() == size * (size - 1) / 2, total
assert hvd.local_size() * hvd.cross_size() == size
if "--die" in sys.argv and rank == size - 1:
    print(f"DIES {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(rank)
model = torch.nn.Linear(1, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for _ in range(60):
    x = torch.rand(32, 1)
    loss = ((model(x) - (3 * x + rank)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
seen = hvd.allgather(weights.unsqueeze(0))
assert seen.shape[0] == size and all(torch.equal(item, weights) for item in seen), "the ranks' weights differ"
at_half = (weights[0] * 0.5 + weights[1]).item()
assert abs(at_half - (1.5 + (size - 1) / 2)) < 0.4, at_half
where = f"{os.uname().nodename} node {os.environ.get('TRAINSHED_NODE')} local {hvd.local_rank()}"
print(f"TRAINED rank {rank} of {size} on {where} sum {total.item():g}", flush=True)
hvd.shutdown()
