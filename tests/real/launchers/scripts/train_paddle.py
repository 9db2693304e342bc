"""Fits a line on all ranks together with paddle.distributed, and checks what the ranks tell one another."""

import os
import signal
import sys
import time

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
from paddle.distributed.collective import _default_store  # noqa: E402 - there is none before

rank, size = dist.get_rank(), dist.get_world_size()
total = paddle.to_tensor([float(rank)])
dist.all_reduce(total)
assert float(total) == size * (size - 1) / 2, total
if "--die" in sys.argv and rank == size - 1:
    print(f"DIES {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

# Paddle keeps the addresses of all groups under the same names; a second group must not meet the first's.
places = [bytes(_default_store.get(str(other))) for other in range(size)]
again = paddle.to_tensor([float(rank)])
dist.all_reduce(again, group=dist.new_group(list(range(size))))
assert float(again) == float(total), again
assert [bytes(_default_store.get(str(other))) for other in range(size)] == places, "a group's places are gone"

paddle.seed(rank)
layer = paddle.nn.Linear(1, 1)
model = paddle.DataParallel(layer) if size > 1 else layer
optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
for _ in range(60):
    x = paddle.rand([32, 1])
    loss = ((model(x) - (3 * x + rank)) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
weights = paddle.concat([p.detach().flatten() for p in model.parameters()])
seen = []
dist.all_gather(seen, weights)
assert all(bool((item == weights).all()) for item in seen), "the ranks' weights differ"
at_half = float(weights[0] * 0.5 + weights[1])
assert abs(at_half - (1.5 + (size - 1) / 2)) < 0.4, at_half
print(f"TRAINED rank {rank} of {size} on {os.uname().nodename} sum {float(total):g}", flush=True)
