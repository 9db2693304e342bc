"""DeepSpeed as its "getting started" shows it: initialize, forward, backward, step."""

import argparse

import deepspeed
import deepspeed.comm as dist
import deepspeed.ops
import torch
from torch import nn
from torch.utils.data import TensorDataset

# Where there is a compiler, ranks on a CPU first build an operator for shared memory, for minutes. gloo is enough here.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

CONFIG = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1, help="passed by the launcher")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(0)
    inputs = torch.randn(512, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    engine, _, loader, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), training_data=data, config=CONFIG
    )
    means = []
    for _ in range(args.epochs):
        losses = []
        for batch, target in loader:
            loss = nn.functional.mse_loss(engine(batch), target)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        means.append(sum(losses) / len(losses))
    assert means[-1] < means[0], means

    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    print(f"rank {rank} of {size}: sum of ranks {int(total)}\n", end="", flush=True)


main()
