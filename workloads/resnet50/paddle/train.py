"""ResNet-50 v1.5 with PaddlePaddle, data parallel over all ranks; measured with the meter.

`--data` holds packed arrays (train/images.npy, …; the tiny scale) or folders of
pictures by class (train/<class>/*.JPEG, as ImageNet).
"""

import argparse
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from trainshed_meter import Meter, dataset_checksum


def main() -> None:
    options = parse_options()
    meter = Meter()
    meter.seed(options.seed)
    if not paddle.is_compiled_with_cuda():
        paddle.set_device("cpu")
    rank, ranks = join()
    paddle.seed(options.seed)
    with meter.phase("dataload"):
        train, val = dataset(options, "train"), dataset(options, "val")
        checksum = dataset_checksum(str(options.data)) if options.checksum else "sha256:not-calculated"
        meter.dataset(options.dataset or options.data.name, checksum, len(train), len(val))
    steps = len(train) * options.repeat // (options.batch * ranks)
    total = steps * options.epochs
    with meter.phase("prepare"):
        network = ResNet(
            [int(b) for b in options.blocks.split(",")], options.width, options.classes, options.size
        )
        model = paddle.DataParallel(network) if ranks > 1 else network
        schedule = paddle.optimizer.lr.LambdaDecay(options.lr, lambda s: rate(s, total))
        optimiser = paddle.optimizer.Momentum(
            schedule, 0.9, parameters=model.parameters(), use_nesterov=True, weight_decay=options.decay
        )
        loss_of = nn.CrossEntropyLoss(label_smoothing=options.smoothing)
    meter.start(global_batch_size=options.batch * ranks, opt_name="sgd", epochs=options.epochs)
    done, pending, accuracy = 0, 0, 0.0
    for epoch in range(options.epochs):
        with meter.epoch():
            model.train()
            for pictures, labels in batches(train, options, rank, ranks, epoch, steps):
                loss = loss_of(model(pictures), labels)
                loss.backward()
                optimiser.step()
                optimiser.clear_grad()
                schedule.step()
                done, pending = done + 1, pending + 1
                if pending == options.sync or done % steps == 0:
                    value = float(loss)  # waits for the device: what is marked as done is done
                    meter.step(samples=options.batch * pending, steps=pending)
                    pending = 0
                    if rank == 0 and done % options.log_every == 0:
                        print(f"step {done}/{total} loss={value:.4f}", flush=True)
        meter.loss(value)
        with meter.evaluation():
            accuracy = evaluate(network, val, options, rank, ranks)
        meter.quality("accuracy", accuracy)
        if rank == 0:
            print(f"epoch {epoch + 1} accuracy={accuracy:.4f}", flush=True)
    meter.stop()
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


def join() -> tuple[int, int]:
    if dist.get_world_size() > 1:
        dist.init_parallel_env()
    return dist.get_rank(), dist.get_world_size()


class Packed:
    def __init__(self, folder: Path) -> None:
        self.images = np.load(folder / "images.npy")
        self.labels = np.load(folder / "labels.npy").astype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, indexes: np.ndarray):
        pictures = self.images[indexes].astype(np.float32) / 255
        return paddle.to_tensor(pictures), paddle.to_tensor(self.labels[indexes])


def dataset(options: argparse.Namespace, part: str):
    if (options.data / part / "images.npy").exists():
        return Packed(options.data / part)
    from paddle.vision import datasets, transforms

    normalise = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    if part == "train":
        first = [transforms.RandomResizedCrop(options.size), transforms.RandomHorizontalFlip()]
    else:
        first = [transforms.Resize(options.size * 256 // 224), transforms.CenterCrop(options.size)]
    work = transforms.Compose([*first, transforms.ToTensor(), normalise])
    return datasets.DatasetFolder(str(options.data / part), transform=work)


def loader(data, indexes: np.ndarray, options):
    """Batches of the pictures with these indexes, in this order."""
    size = options.batch
    if isinstance(data, Packed):
        return (data.part(indexes[at : at + size]) for at in range(0, len(indexes), size))
    chosen = paddle.io.Subset(data, indexes.tolist())
    return paddle.io.DataLoader(chosen, batch_size=size, num_workers=options.workers)


def batches(data, options, rank: int, ranks: int, epoch: int, steps: int):
    """The same order on every rank, of which each takes its own part; every batch is full."""
    chance = np.random.default_rng(options.seed * 1000 + epoch)
    order = np.concatenate([chance.permutation(len(data)) for _ in range(options.repeat)])
    yield from loader(data, order[rank::ranks][: steps * options.batch], options)


def evaluate(network, data, options, rank: int, ranks: int) -> float:
    """Every rank judges its part; the sums are of all."""
    network.eval()
    right = count = 0
    with paddle.no_grad():
        for pictures, labels in loader(data, np.arange(len(data))[rank::ranks], options):
            guesses = network(pictures).argmax(axis=1)
            right, count = right + int((guesses == labels).sum()), count + len(labels)
    counts = paddle.to_tensor([float(right), float(count)])
    if ranks > 1:
        dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def rate(step: int, total: int) -> float:
    """Up for a twentieth, then down along a cosine."""
    warm = max(1, total // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, total - warm))))


def convolution(inside: int, outside: int, kernel: int, stride: int = 1) -> nn.Conv2D:
    return nn.Conv2D(inside, outside, kernel, stride, kernel // 2, bias_attr=False)


class Bottleneck(nn.Layer):
    """1×1, 3×3 (with the stride: version 1.5), 1×1, and a shortcut."""

    def __init__(self, inside: int, planes: int, stride: int) -> None:
        super().__init__()
        outside = planes * 4
        zero = paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))
        self.body = nn.Sequential(
            convolution(inside, planes, 1), nn.BatchNorm2D(planes), nn.ReLU(),
            convolution(planes, planes, 3, stride), nn.BatchNorm2D(planes), nn.ReLU(),
            convolution(planes, outside, 1), nn.BatchNorm2D(outside, weight_attr=zero),
        )  # fmt: skip
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(convolution(inside, outside, 1, stride), nn.BatchNorm2D(outside))

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Layer):
    """ResNet-50 is blocks 3,4,6,3 of width 64; small pictures get a small first layer."""

    def __init__(self, blocks: list[int], width: int, classes: int, size: int) -> None:
        super().__init__()
        if size >= 64:
            layers = [convolution(3, width, 7, 2), nn.BatchNorm2D(width), nn.ReLU(), nn.MaxPool2D(3, 2, 1)]
        else:
            layers = [convolution(3, width, 3), nn.BatchNorm2D(width), nn.ReLU()]
        inside = width
        for stage, count in enumerate(blocks):
            for i in range(count):
                planes = width * 2**stage
                layers.append(Bottleneck(inside, planes, 2 if stage > 0 and i == 0 else 1))
                inside = planes * 4
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inside, classes)

    def forward(self, x):
        return self.head(self.features(x).mean(axis=[2, 3]))


if __name__ == "__main__":
    main()
