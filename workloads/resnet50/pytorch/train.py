"""ResNet-50 v1.5 with PyTorch, data parallel over all ranks; measured with the meter.

`--data` holds packed arrays (train/images.npy, …; the tiny scale) or folders of
pictures by class (train/<class>/*.JPEG, as ImageNet; needs torchvision).
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainshed_meter import Meter, dataset_checksum


def main() -> None:
    options = parse_options()
    meter = Meter()
    meter.seed(options.seed)
    torch.manual_seed(options.seed)
    rank, ranks, device = join()
    with meter.phase("dataload"):
        train = dataset(options, "train")
        val = dataset(options, "val")
        checksum = dataset_checksum(str(options.data)) if options.checksum else "sha256:not-calculated"
        meter.dataset(options.dataset or options.data.name, checksum, len(train), len(val))
    with meter.phase("prepare"):
        network = ResNet(
            [int(b) for b in options.blocks.split(",")], options.width, options.classes, options.size
        )
        network = network.to(device)
        model = DistributedDataParallel(network) if ranks > 1 else network
        optimiser = torch.optim.SGD(
            model.parameters(), lr=options.lr, momentum=0.9, nesterov=True, weight_decay=options.decay
        )
    steps = len(train) * options.repeat // (options.batch * ranks)
    total = steps * options.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda s: rate(s, total))
    loss_of = nn.CrossEntropyLoss(label_smoothing=options.smoothing)
    meter.start(global_batch_size=options.batch * ranks, opt_name="sgd", epochs=options.epochs)
    done, pending, accuracy = 0, 0, 0.0
    for epoch in range(options.epochs):
        with meter.epoch():
            model.train()
            for pictures, labels in batches(train, options, rank, ranks, epoch, steps):
                loss = loss_of(model(pictures.to(device)), labels.to(device))
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
                done, pending = done + 1, pending + 1
                if pending == options.sync or done % steps == 0:
                    value = loss.item()  # waits for the device: what is marked as done is done
                    meter.step(samples=options.batch * pending, steps=pending)
                    pending = 0
                    if rank == 0 and done % options.log_every == 0:
                        print(f"step {done}/{total} loss={value:.4f}", flush=True)
        meter.loss(value)
        with meter.evaluation():
            accuracy = evaluate(network, val, options, rank, ranks, device)
        meter.quality("accuracy", accuracy)
        if rank == 0:
            print(f"epoch {epoch + 1} accuracy={accuracy:.4f}", flush=True)
    meter.stop()
    if ranks > 1:
        dist.destroy_process_group()
    if accuracy < options.target:
        print(f"rank {rank}: accuracy {accuracy:.4f} is below the target {options.target}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="", help="what the data are called; else as their folder")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch", type=int, default=256, help="pictures a rank takes in one step")
    parser.add_argument("--blocks", default="3,4,6,3")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--lr", type=float, default=0.8)
    parser.add_argument("--decay", type=float, default=1e-4)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--repeat", type=int, default=1, help="passes over the data in one epoch")
    parser.add_argument("--sync", type=int, default=1, help="steps between waits for the device")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--checksum", type=int, default=1, help="0: do not read all data to check them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.759)
    return parser.parse_args()


def join() -> tuple[int, int, torch.device]:
    cuda = torch.cuda.is_available()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if ranks > 1:
        dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(minutes=10))
    return int(os.environ.get("RANK", "0")), ranks, device


class Packed(torch.utils.data.Dataset):
    def __init__(self, folder: Path) -> None:
        self.images = torch.from_numpy(np.load(folder / "images.npy"))
        self.labels = torch.from_numpy(np.load(folder / "labels.npy").astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)


def dataset(options: argparse.Namespace, part: str) -> torch.utils.data.Dataset:
    if (options.data / part / "images.npy").exists():
        return Packed(options.data / part)
    from torchvision import datasets, transforms

    normalise = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    if part == "train":
        first = [transforms.RandomResizedCrop(options.size), transforms.RandomHorizontalFlip()]
    else:
        first = [transforms.Resize(options.size * 256 // 224), transforms.CenterCrop(options.size)]
    return datasets.ImageFolder(
        str(options.data / part), transforms.Compose([*first, transforms.ToTensor(), normalise])
    )


def batches(data, options, rank: int, ranks: int, epoch: int, steps: int):
    """The same order on every rank, of which each takes its own part; every batch is full."""
    chance = torch.Generator().manual_seed(options.seed * 1000 + epoch)
    order = torch.cat([torch.randperm(len(data), generator=chance) for _ in range(options.repeat)])
    mine = order[rank::ranks][: steps * options.batch]
    if isinstance(data, Packed):
        for part in mine.split(options.batch):
            yield data.images[part].float() / 255, data.labels[part]
        return
    yield from torch.utils.data.DataLoader(
        torch.utils.data.Subset(data, mine.tolist()),
        options.batch,
        num_workers=options.workers,
        pin_memory=True,
    )


def evaluate(network, data, options, rank: int, ranks: int, device) -> float:
    """Every rank judges its part; the sums are of all."""
    network.eval()
    counts = torch.zeros(2, device=device)
    mine = torch.arange(len(data))[rank::ranks]
    if isinstance(data, Packed):
        parts = ((data.images[p].float() / 255, data.labels[p]) for p in mine.split(options.batch))
    else:
        parts = torch.utils.data.DataLoader(
            torch.utils.data.Subset(data, mine.tolist()), options.batch, num_workers=options.workers
        )
    with torch.no_grad():
        for pictures, labels in parts:
            guesses = network(pictures.to(device)).argmax(dim=1).cpu()
            counts += torch.tensor([float((guesses == labels).sum()), float(len(labels))], device=device)
    if ranks > 1:
        dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def rate(step: int, total: int) -> float:
    """Up for a twentieth, then down along a cosine."""
    warm = max(1, total // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, total - warm))))


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride: version 1.5), 1×1, and a shortcut."""

    def __init__(self, inside: int, planes: int, stride: int) -> None:
        super().__init__()
        outside = planes * 4
        self.body = nn.Sequential(
            nn.Conv2d(inside, planes, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU(inplace=True),
            nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU(inplace=True),
            nn.Conv2d(planes, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        nn.init.zeros_(self.body[-1].weight)
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-50 is blocks 3,4,6,3 of width 64; small pictures get a small first layer."""

    def __init__(self, blocks: list[int], width: int, classes: int, size: int) -> None:
        super().__init__()
        if size >= 64:
            stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                    nn.MaxPool2d(3, 2, 1)]  # fmt: skip
        else:
            stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        layers, inside = list(stem), width
        for stage, count in enumerate(blocks):
            for i in range(count):
                planes = width * 2**stage
                layers.append(Bottleneck(inside, planes, 2 if stage > 0 and i == 0 else 1))
                inside = planes * 4
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inside, classes)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


if __name__ == "__main__":
    main()
