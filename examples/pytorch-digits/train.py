"""Trains a small network on handwritten digits with PyTorch, data parallel over all ranks (gloo, DDP).

On one device it runs alone: python train.py --data=../data/digits
With more, the launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEST_IMAGES = 360  # the rest of the test file repeats them
RECORD_BYTES = 1 + 3 * 32 * 32


def main() -> None:
    options = parse_options()
    torch.manual_seed(1)
    rank, ranks = join()
    ranks_talked = sum_of_ranks(rank, ranks)

    network = small_network()
    trained = train(network, options, rank, ranks)
    agree = weights_agree(network, ranks)
    accuracy = evaluate(network, options.data)

    if rank == 0:
        print(f"accuracy={accuracy:.4f}")
        print(f"throughput={trained['throughput']:.1f} samples/s", flush=True)
        write_result(
            options.out,
            {
                "framework": "pytorch",
                "version": torch.__version__,
                "ranks": ranks,
                "sum_of_ranks": ranks_talked,
                "weights_agree": agree,
                "accuracy": accuracy,
                "target": options.target,
                **trained,
            },
        )
    if ranks > 1:
        dist.destroy_process_group()
    if not agree:
        sys.exit(f"rank {rank}: the ranks' weights differ after training")
    if accuracy < options.target:
        sys.exit(f"rank {rank}: accuracy {accuracy:.4f} is below the target {options.target}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("TRAINSHED_OUTPUT_DIR", "outputs")))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="images a rank takes in one step")
    parser.add_argument("--target", type=float, default=0.95, help="exit 1 below this accuracy")
    return parser.parse_args()


def join() -> tuple[int, int]:
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    return dist.get_rank(), dist.get_world_size()


def sum_of_ranks(rank: int, ranks: int) -> int:
    """What the ranks' numbers add up to over the network: proof that all of them talked."""
    total = torch.tensor([rank])
    if ranks > 1:
        dist.all_reduce(total)
    expected = ranks * (ranks - 1) // 2
    print(f"rank {rank} of {ranks}: sum of ranks {total.item()}, expected {expected}", flush=True)
    if total.item() != expected:
        sys.exit(f"rank {rank}: the ranks' sum is {total.item()}, not {expected}")
    return int(total.item())


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def images(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """All pictures and labels of a CIFAR-10 binary file."""
    records = np.fromfile(file, np.uint8).reshape(-1, RECORD_BYTES)
    pictures = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return pictures, torch.from_numpy(records[:, 0].astype(np.int64))


def train(network: nn.Module, options: argparse.Namespace, rank: int, ranks: int) -> dict:
    pictures, labels = images(options.data / "train/data_batch_1.bin")
    steps_per_epoch = len(labels) // (options.batch * ranks)
    steps = steps_per_epoch * options.epochs
    model = DistributedDataParallel(network) if ranks > 1 else network
    optimiser = torch.optim.Adam(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: learning_rate(step, steps, ranks))
    loss_of = nn.CrossEntropyLoss()

    done, started = 0, 0.0
    for epoch in range(options.epochs):
        # The same order on every rank, of which each takes its own part.
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        for mine in order[rank::ranks].split(options.batch)[:steps_per_epoch]:
            loss = loss_of(model(pictures[mine].float() / 255), labels[mine])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            done += 1
            if done == 1:
                started = time.perf_counter()  # the first step warms up and is not timed
            if rank == 0 and done % 50 == 0:
                print(f"epoch {epoch} step {done}/{steps} loss={loss.item():.4f}", flush=True)
    seconds = time.perf_counter() - started
    samples = (done - 1) * options.batch * ranks
    return {
        "epochs": options.epochs,
        "steps": done,
        "train_seconds": seconds,
        "throughput": samples / seconds,
    }


def learning_rate(step: int, steps: int, ranks: int) -> float:
    """Up for the first fifth, then down; higher with more ranks, as they take fewer and larger steps."""
    highest = 0.004 * ranks**0.5
    return float(np.interp(step, [0, steps / 5, steps], [highest / 5, highest, highest / 50]))


def weights_agree(network: nn.Module, ranks: int) -> bool:
    """Every rank has every bit of every weight in common with the others."""
    if ranks == 1:
        return True
    mine = torch.cat([p.detach().ravel() for p in network.parameters()])
    every = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(every, mine)
    return all(torch.equal(mine, other) for other in every)


def evaluate(network: nn.Module, folder: Path) -> float:
    network.eval()
    pictures, labels = images(folder / "eval/test_batch.bin")
    with torch.no_grad():
        guesses = network(pictures[:TEST_IMAGES].float() / 255).argmax(dim=1)
    return (guesses == labels[:TEST_IMAGES]).float().mean().item()


def write_result(folder: Path, result: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
