"""A multilayer perceptron in data parallel with today's Paddle: what the guide's network is now.

Every rank proves at the end that the ranks talked and that their weights agree.
"""

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

STEPS = 30


def train(model, optimizer, rank, ranks):
    generator = np.random.default_rng(rank)
    loss_function = nn.CrossEntropyLoss()
    losses = []
    for _ in range(STEPS):
        x = generator.random((128, 32), dtype=np.float32)
        y = (x.sum(axis=1) > 16).astype(np.int64)
        loss = loss_function(model(paddle.to_tensor(x)), paddle.to_tensor(y))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    check(model, rank, ranks)
    print(f"rank {rank} of {ranks}: cost {losses[0]:.4f} -> {losses[-1]:.4f}, weights agree", flush=True)
    return losses


def check(model, rank, ranks):
    total = paddle.to_tensor([float(rank)])
    if ranks > 1:
        dist.all_reduce(total)
    assert float(total) == ranks * (ranks - 1) / 2, f"the ranks' sum is {float(total)}"
    mine = paddle.concat([p.flatten() for p in model.parameters()])
    every = [mine]
    if ranks > 1:
        every = []
        dist.all_gather(every, mine)
    assert all(bool((weights == every[0]).all()) for weights in every), "the ranks' weights differ"


def network(hidden=64):
    return nn.Sequential(
        nn.Linear(32, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
    )


if __name__ == "__main__":
    paddle.set_device("cpu")
    paddle.seed(1)
    dist.init_parallel_env()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = network()
    parallel = paddle.DataParallel(model) if ranks > 1 else model
    train(parallel, paddle.optimizer.SGD(0.1, parameters=model.parameters()), rank, ranks)
    if rank == 0:
        paddle.save(model.state_dict(), "./model.pdparams")
