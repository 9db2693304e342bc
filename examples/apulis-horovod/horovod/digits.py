"""Handwritten digits with Horovod and PyTorch: checkpoints and a log, as the platform's guide keeps them.

horovodrun … python digits.py CHECKPOINTS LOGS
"""

import json
import os
import sys

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

RECORD = 1 + 3 * 32 * 32


def main(checkpoints, logs):
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9), model.named_parameters()
    )
    images, labels = read("/data/cifar10/train/data_batch_1.bin")
    mine = torch.arange(hvd.rank(), len(labels), hvd.size())
    for epoch in range(2):
        for batch in mine[torch.randperm(len(mine))].split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            torch.save(model.state_dict(), os.path.join(checkpoints, f"epoch-{epoch}.pt"))
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    every = hvd.allgather(weights.unsqueeze(0))
    assert all(torch.equal(item, weights) for item in every), "the ranks' weights differ"
    images, labels = read("/data/cifar10/eval/test_batch.bin", 360)
    accuracy = (model(images).argmax(1) == labels).float().mean().item()
    print(f"rank {hvd.rank()} of {hvd.size()}: accuracy {accuracy:.3f}, weights agree", flush=True)
    if hvd.rank() == 0:
        os.makedirs(logs, exist_ok=True)
        with open(os.path.join(logs, "accuracy.json"), "w") as stream:
            json.dump(accuracy, stream)
    assert accuracy > 0.8, accuracy
    hvd.shutdown()


def read(path, count=None):
    """Labels, and the first of the three equal colours, from CIFAR-10's own format."""
    records = np.fromfile(path, np.uint8).reshape(-1, RECORD)[:count]
    return torch.from_numpy(records[:, 1:1025] / np.float32(255)), torch.from_numpy(
        records[:, 0].astype(np.int64)
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
