"""ResNet-50 v1.5 with MindSpore, data parallel over all ranks; measured with the meter.

`--data` holds packed arrays (train/images.npy, …; the tiny scale) or folders of
pictures by class (train/<class>/*.JPEG, as ImageNet).
"""

import argparse
import os
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.common import initializer
from mindspore.communication import get_group_size, get_rank, init
from trainshed_meter import Meter, dataset_checksum


def main() -> None:
    options = parse_options()
    ms.set_seed(options.seed)
    np.random.seed(options.seed)
    ms.set_device(options.device)
    ms.set_context(mode=ms.GRAPH_MODE)
    meter = Meter()
    meter.seed(options.seed)
    rank, ranks = join()
    with meter.phase("dataload"):
        train = dataset(options, "train", rank, ranks)
        val = dataset(options, "val", rank, ranks)
        checksum = dataset_checksum(str(options.data)) if options.checksum else "sha256:not-calculated"
        meter.dataset(options.dataset or options.data.name, checksum, train.count, val.count)
    steps = train.count * options.repeat // (options.batch * ranks)
    total = steps * options.epochs
    with meter.phase("prepare"):
        network = resnet(
            [int(b) for b in options.blocks.split(",")], options.width, options.classes, options.size
        )
        rates = [options.lr * rate(s, total) for s in range(total)]
        optimiser = nn.Momentum(
            network.trainable_params(), rates, 0.9, weight_decay=options.decay, use_nesterov=True
        )
        loss_of = nn.CrossEntropyLoss(label_smoothing=options.smoothing)
        step = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimiser).set_train()
        total_of = Sum(ranks)
    meter.start(global_batch_size=options.batch * ranks, opt_name="sgd", epochs=options.epochs)
    done, pending, accuracy = 0, 0, 0.0
    for epoch in range(options.epochs):
        with meter.epoch():
            network.set_train(True)
            for pictures, labels in train.batches(epoch, steps):
                loss = step(ms.Tensor(pictures), ms.Tensor(labels))
                done, pending = done + 1, pending + 1
                if pending == options.sync or done % steps == 0:
                    value = float(loss.asnumpy())  # waits for the device: what is marked as done is done
                    meter.step(samples=options.batch * pending, steps=pending)
                    pending = 0
                    if rank == 0 and done % options.log_every == 0:
                        print(f"step {done}/{total} loss={value:.4f}", flush=True)
        meter.loss(value)
        with meter.evaluation():
            accuracy = evaluate(network, val, total_of)
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
    parser.add_argument("--device", default="Ascend" if os.path.exists("/dev/davinci_manager") else "CPU")
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
    """Rank and number of ranks. MindSpore's scheduler runs this script too, and stays inside init()."""
    if int(os.environ.get("MS_WORKER_NUM") or os.environ.get("RANK_SIZE") or "1") == 1:
        return 0, 1
    init()
    rank, ranks = get_rank(), get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=ranks
    )
    return rank, ranks


class Packed:
    """Arrays of a folder, of which every rank takes its part of a common order; every batch is full."""

    def __init__(self, folder: Path, options, rank: int, ranks: int) -> None:
        self.images = np.load(folder / "images.npy")
        self.labels = np.load(folder / "labels.npy").astype(np.int32)
        self.count = len(self.labels)
        self.options, self.rank, self.ranks = options, rank, ranks

    def batches(self, epoch: int, steps: int):
        chance = np.random.default_rng(self.options.seed * 1000 + epoch)
        order = np.concatenate([chance.permutation(self.count) for _ in range(self.options.repeat)])
        mine, size = order[self.rank :: self.ranks], self.options.batch
        for at in range(0, steps * size, size):
            part = mine[at : at + size]
            yield self.images[part].astype(np.float32) / 255, self.labels[part]

    def parts(self):
        """This rank's part for evaluation, all in one size: the graph is compiled once."""
        mine, size = np.arange(self.count)[self.rank :: self.ranks], self.options.batch
        for at in range(0, len(mine), size):
            part = mine[at : at + size]
            filled = np.resize(part, size)
            yield self.images[filled].astype(np.float32) / 255, self.labels[part]


class Folders:
    """Pictures in folders by class, read and enlarged by MindSpore."""

    def __init__(self, folder: Path, options, rank: int, ranks: int) -> None:
        import mindspore.dataset as ds
        from mindspore.dataset import vision

        train = folder.name == "train"
        shard = {"num_shards": ranks, "shard_id": rank} if ranks > 1 else {}
        data = ds.ImageFolderDataset(
            str(folder), num_parallel_workers=options.workers, shuffle=train, decode=False, **shard
        )
        mean, deviation = [0.485 * 255, 0.456 * 255, 0.406 * 255], [0.229 * 255, 0.224 * 255, 0.225 * 255]
        if train:
            first = [vision.RandomCropDecodeResize(options.size), vision.RandomHorizontalFlip()]
        else:
            first = [
                vision.Decode(),
                vision.Resize(options.size * 256 // 224),
                vision.CenterCrop(options.size),
            ]
        work = [*first, vision.Normalize(mean, deviation), vision.HWC2CHW()]
        data = data.map(work, "image", num_parallel_workers=options.workers)
        data = data.map(lambda label: label.astype(np.int32), "label")
        self.count = ds.ImageFolderDataset(str(folder), decode=False).get_dataset_size()
        self.data = data.batch(options.batch, drop_remainder=train)
        self.size = options.batch

    def batches(self, _epoch: int, steps: int):
        done = 0
        while done < steps:
            for pictures, labels in self.data.create_tuple_iterator(num_epochs=1, output_numpy=True):
                yield pictures, labels
                done += 1
                if done == steps:
                    return

    def parts(self):
        for pictures, labels in self.data.create_tuple_iterator(num_epochs=1, output_numpy=True):
            yield np.resize(pictures, (self.size, *pictures.shape[1:])), labels


def dataset(options: argparse.Namespace, part: str, rank: int, ranks: int):
    folder = options.data / part
    kind = Packed if (folder / "images.npy").exists() else Folders
    return kind(folder, options, rank, ranks)


class Sum(nn.Cell):
    """A sum over all ranks; in a cell because graph mode needs one."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.operation = ops.AllReduce() if ranks > 1 else None

    def construct(self, tensor):
        return tensor if self.operation is None else self.operation(tensor)


def evaluate(network: nn.Cell, data, total_of: nn.Cell) -> float:
    """Every rank judges its part; the sums are of all."""
    network.set_train(False)
    right = count = 0
    for pictures, labels in data.parts():
        guesses = network(ms.Tensor(pictures)).asnumpy().argmax(axis=1)[: len(labels)]
        right, count = right + int((guesses == labels).sum()), count + len(labels)
    sums = total_of(ms.Tensor([right, count], ms.float32)).asnumpy()
    return float(sums[0] / sums[1])


def rate(step: int, total: int) -> float:
    """Up for a twentieth, then down along a cosine."""
    warm = max(1, total // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, total - warm))))


def convolution(inside: int, outside: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    weight = initializer.HeNormal(mode="fan_out", nonlinearity="relu")
    return nn.Conv2d(inside, outside, kernel, stride, pad_mode="pad", padding=kernel // 2, weight_init=weight)


class Bottleneck(nn.Cell):
    """1×1, 3×3 (with the stride: version 1.5), 1×1, and a shortcut."""

    def __init__(self, inside: int, planes: int, stride: int) -> None:
        super().__init__()
        outside = planes * 4
        self.body = nn.SequentialCell(
            convolution(inside, planes, 1), nn.BatchNorm2d(planes), nn.ReLU(),
            convolution(planes, planes, 3, stride), nn.BatchNorm2d(planes), nn.ReLU(),
            convolution(planes, outside, 1), nn.BatchNorm2d(outside, gamma_init="zeros"),
        )  # fmt: skip
        self.shortcut = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.SequentialCell(
                convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside)
            )
        self.relu = nn.ReLU()

    def construct(self, x):
        side = x if self.shortcut is None else self.shortcut(x)
        return self.relu(self.body(x) + side)


class Mean(nn.Cell):
    def construct(self, x):
        return x.mean((2, 3))


def resnet(blocks: list[int], width: int, classes: int, size: int) -> nn.Cell:
    """ResNet-50 is blocks 3,4,6,3 of width 64; small pictures get a small first layer."""
    if size >= 64:
        layers = [convolution(3, width, 7, 2), nn.BatchNorm2d(width), nn.ReLU(),
                  nn.MaxPool2d(3, 2, pad_mode="same")]  # fmt: skip
    else:
        layers = [convolution(3, width, 3), nn.BatchNorm2d(width), nn.ReLU()]
    inside = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            planes = width * 2**stage
            layers.append(Bottleneck(inside, planes, 2 if stage > 0 and i == 0 else 1))
            inside = planes * 4
    return nn.SequentialCell(*layers, Mean(), nn.Dense(inside, classes))


if __name__ == "__main__":
    main()
