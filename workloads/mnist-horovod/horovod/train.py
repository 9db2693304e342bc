"""A small convolutional network on MNIST with Horovod and PyTorch; measured with the meter.

`--data` holds the four files of MNIST (idx format, unpacked).
"""

import argparse
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn
from trainshed_meter import Meter, dataset_checksum


def main() -> None:
    options = parse_options()
    meter = Meter()
    meter.seed(options.seed)
    hvd.init()
    rank, ranks = hvd.rank(), hvd.size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", hvd.local_rank())
    torch.manual_seed(options.seed)
    with meter.phase("dataload"):
        train, val = read(options.data, "train"), read(options.data, "t10k")
        meter.dataset(
            options.dataset or options.data.name,
            dataset_checksum(str(options.data)),
            len(train[1]),
            len(val[1]),
        )
    steps = len(train[1]) // (options.batch * ranks)
    total = steps * options.epochs
    with meter.phase("prepare"):
        network = small_network().to(device)
        optimiser = torch.optim.SGD(network.parameters(), lr=options.lr * ranks**0.5, momentum=0.9)
        optimiser = hvd.DistributedOptimizer(optimiser, named_parameters=network.named_parameters())
        hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        loss_of = nn.CrossEntropyLoss()
    meter.start(global_batch_size=options.batch * ranks, opt_name="sgd", epochs=options.epochs)
    done, accuracy = 0, 0.0
    for epoch in range(options.epochs):
        with meter.epoch():
            network.train()
            # The same order on every rank, of which each takes its own part.
            chance = torch.Generator().manual_seed(options.seed * 1000 + epoch)
            mine = torch.randperm(len(train[1]), generator=chance)[rank::ranks][: steps * options.batch]
            for part in mine.split(options.batch):
                loss = loss_of(network(train[0][part].to(device)), train[1][part].to(device))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                value = loss.item()  # waits for the device: what is marked as done is done
                meter.step(samples=options.batch)
                done += 1
                if rank == 0 and done % options.log_every == 0:
                    print(f"step {done}/{total} loss={value:.4f}", flush=True)
        meter.loss(value)
        with meter.evaluation():
            accuracy = evaluate(network, val, rank, ranks, device)
        meter.quality("accuracy", accuracy)
        if rank == 0:
            print(f"epoch {epoch + 1} accuracy={accuracy:.4f}", flush=True)
    meter.stop()
    if accuracy < options.target:
        print(f"rank {rank}: accuracy {accuracy:.4f} is below the target {options.target}", flush=True)
    hvd.shutdown()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="", help="what the data are called; else as their folder")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="pictures a rank takes in one step")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.98)
    return parser.parse_args()


def read(folder: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures and labels of two idx files."""
    pictures = np.fromfile(folder / f"{name}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 1, 28, 28)
    labels = np.fromfile(folder / f"{name}-labels-idx1-ubyte", np.uint8)[8:]
    return torch.from_numpy(pictures.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def evaluate(network, data, rank: int, ranks: int, device) -> float:
    """Every rank judges its part; the sums are of all."""
    network.eval()
    pictures, labels = data[0][rank::ranks], data[1][rank::ranks]
    with torch.no_grad():
        guesses = torch.cat([network(p.to(device)).argmax(dim=1).cpu() for p in pictures.split(500)])
    counts = torch.tensor([float((guesses == labels).sum()), float(len(labels))])
    counts = hvd.allreduce(counts, op=hvd.Sum, name="evaluation")
    return (counts[0] / counts[1]).item()


if __name__ == "__main__":
    main()
