"""Trains a small network on handwritten digits with MindSpore, data parallel over all ranks.

On one device it runs alone: python train.py --data=../data/digits
With more, the launcher sets MindSpore's MS_* variables and `init()` joins the ranks.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

TEST_IMAGES = 360  # the rest of the test file repeats them


def main() -> None:
    options = parse_options()
    ms.set_seed(1)
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
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
                "framework": "mindspore",
                "version": ms.__version__,
                "ranks": ranks,
                "sum_of_ranks": ranks_talked,
                "weights_agree": agree,
                "accuracy": accuracy,
                "target": options.target,
                **trained,
            },
        )
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
    """Rank and number of ranks. MindSpore's scheduler runs this script too, and stays inside init()."""
    if int(os.environ.get("MS_WORKER_NUM", "1")) == 1:
        return 0, 1
    init()
    rank, ranks = get_rank(), get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=ranks
    )
    return rank, ranks


class Collective(nn.Cell):
    """One collective operation, in a cell because graph mode needs one."""

    def __init__(self, operation: nn.Cell) -> None:
        super().__init__()
        self.operation = operation

    def construct(self, tensor):
        return self.operation(tensor)


def sum_of_ranks(rank: int, ranks: int) -> int:
    """What the ranks' numbers add up to over the network: proof that all of them talked."""
    total = rank
    if ranks > 1:
        total = int(Collective(ops.AllReduce())(ms.Tensor([rank], ms.float32)).asnumpy()[0])
    expected = ranks * (ranks - 1) // 2
    print(f"rank {rank} of {ranks}: sum of ranks {total}, expected {expected}", flush=True)
    if total != expected:
        sys.exit(f"rank {rank}: the ranks' sum is {total}, not {expected}")
    return total


def small_network() -> nn.Cell:
    return nn.SequentialCell(
        nn.Conv2d(3, 16, 4, stride=4, pad_mode="valid", has_bias=True),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, pad_mode="same", has_bias=True),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Dense(512, 64),
        nn.ReLU(),
        nn.Dense(64, 10),
    )


def images(folder: Path, usage: str, batch: int, **how) -> ds.Dataset:
    data = ds.Cifar10Dataset(str(folder), usage=usage, num_parallel_workers=1, **how)
    return data.batch(batch, drop_remainder=usage == "train")


def prepared(pictures: np.ndarray) -> ms.Tensor:
    """Bytes, channels last, to what the network takes."""
    return ms.Tensor(pictures.transpose(0, 3, 1, 2).astype(np.float32) / 255)


def train(network: nn.Cell, options: argparse.Namespace, rank: int, ranks: int) -> dict:
    shard = {"num_shards": ranks, "shard_id": rank} if ranks > 1 else {}
    data = images(options.data / "train", "train", options.batch, shuffle=True, **shard)
    steps = data.get_dataset_size() * options.epochs
    optimiser = nn.Adam(network.trainable_params(), learning_rates(steps, ranks))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimiser).set_train()

    done, started = 0, 0.0
    for epoch, (pictures, labels) in (
        (epoch, batch)
        for epoch in range(options.epochs)
        for batch in data.create_tuple_iterator(num_epochs=1, output_numpy=True)
    ):
        value = step(prepared(pictures), ms.Tensor(labels.astype(np.int32)))
        done += 1
        if done == 1:
            value.asnumpy()  # waits for the first step, which compiles and is not timed
            started = time.perf_counter()
        if rank == 0 and done % 50 == 0:
            print(f"epoch {epoch} step {done}/{steps} loss={float(value.asnumpy()):.4f}", flush=True)
    value.asnumpy()
    seconds = time.perf_counter() - started
    samples = (done - 1) * options.batch * ranks
    return {
        "epochs": options.epochs,
        "steps": done,
        "train_seconds": seconds,
        "throughput": samples / seconds,
    }


def learning_rates(steps: int, ranks: int) -> list[float]:
    """Up for the first fifth, then down; higher with more ranks, as they take fewer and larger steps."""
    highest = 0.004 * ranks**0.5
    return np.interp(np.arange(steps), [0, steps / 5, steps], [highest / 5, highest, highest / 50]).tolist()


def weights_agree(network: nn.Cell, ranks: int) -> bool:
    """Every rank has every bit of every weight in common with the others."""
    if ranks == 1:
        return True
    mine = np.concatenate([p.asnumpy().ravel() for p in network.trainable_params()])
    every = Collective(ops.AllGather())(ms.Tensor(mine[np.newaxis])).asnumpy()
    return bool((every == every[0]).all())


def evaluate(network: nn.Cell, folder: Path) -> float:
    network.set_train(False)
    data = images(folder / "eval", "test", TEST_IMAGES, shuffle=False, num_samples=TEST_IMAGES)
    ((pictures, labels),) = data.create_tuple_iterator(num_epochs=1, output_numpy=True)
    guesses = network(prepared(pictures)).asnumpy().argmax(axis=1)
    return float((guesses == labels).mean())


def write_result(folder: Path, result: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
