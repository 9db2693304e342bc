"""BERT with MindSpore: masked-language-model pre-training, data parallel; measured with the meter.

`--data` holds train/tokens.npy and val/tokens.npy (the tiny scale), or
train/*.mindrecord and val/*.mindrecord with a column `input_ids` (the wiki
data). 15 % of the words are hidden; the accuracy is that of finding them.
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

PAD, MASK, SPECIAL = 0, 4, 5


def main() -> None:
    options = parse_options()
    ms.set_seed(options.seed)
    ms.set_device(options.device)
    ms.set_context(mode=ms.GRAPH_MODE)
    meter = Meter()
    meter.seed(options.seed)
    rank, ranks = join()
    with meter.phase("dataload"):
        train, val = dataset(options, "train", rank, ranks), dataset(options, "val", rank, ranks)
        checksum = dataset_checksum(str(options.data)) if options.checksum else "sha256:not-calculated"
        meter.dataset(options.dataset or options.data.name, checksum, train.count, val.count)
    steps = train.count // (options.batch * ranks)
    total = min(steps * options.epochs, options.steps or steps * options.epochs)
    with meter.phase("prepare"):
        network = Bert(options)
        if options.checkpoint:
            unused, _ = ms.load_param_into_net(network, ms.load_checkpoint(options.checkpoint))
            print(
                f"checkpoint {options.checkpoint}: {len(unused)} parameters keep their first values",
                flush=True,
            )
        rates = [options.lr * rate(s, total) for s in range(total)]
        optimiser = nn.AdamWeightDecay(network.trainable_params(), rates, weight_decay=0.01)
        step = nn.TrainOneStepCell(Loss(network), optimiser).set_train()
        total_of = Sum(ranks)
    meter.start(global_batch_size=options.batch * ranks, opt_name="adamw", epochs=options.epochs)
    done, pending, accuracy, epoch = 0, 0, 0.0, 0
    while done < total:
        with meter.epoch():
            network.set_train(True)
            for batch in batches(train, options, rank, epoch, min(steps, total - done)):
                loss = step(*batch)
                done, pending = done + 1, pending + 1
                if pending == options.sync or done % steps == 0 or done == total:
                    value = float(loss.asnumpy())  # waits for the device: what is marked as done is done
                    meter.step(samples=options.batch * pending, steps=pending)
                    pending = 0
                    if rank == 0 and done % options.log_every == 0:
                        print(f"step {done}/{total} loss={value:.4f}", flush=True)
        epoch += 1
        meter.loss(value)
        with meter.evaluation():
            accuracy = evaluate(network, val, rank, total_of)
        meter.quality("accuracy", accuracy)
        if rank == 0:
            print(f"epoch {epoch} accuracy={accuracy:.4f}", flush=True)
    meter.stop()
    if accuracy < options.target:
        print(f"rank {rank}: accuracy {accuracy:.4f} is below the target {options.target}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="", help="what the data are called; else as their folder")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="Ascend" if os.path.exists("/dev/davinci_manager") else "CPU")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="end after this many steps; 0: after all epochs")
    parser.add_argument("--batch", type=int, default=24, help="sequences a rank takes in one step")
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--sync", type=int, default=1, help="steps between waits for the device")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--checkpoint", default="", help="parameters to begin with, e.g. ms_bert_large.ckpt")
    parser.add_argument("--checksum", type=int, default=1, help="0: do not read all data to check them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.72)
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
    """Rows of an array, of which every rank takes its part of a common order; every batch is full."""

    def __init__(self, folder: Path, options: argparse.Namespace, rank: int, ranks: int) -> None:
        self.rows = np.load(folder / "tokens.npy").astype(np.int32)[:, : options.length]
        self.count = len(self.rows)
        self.options, self.rank, self.ranks = options, rank, ranks

    def batches(self, epoch: int, steps: int):
        order = np.random.default_rng(self.options.seed * 1000 + epoch).permutation(self.count)
        mine, size = order[self.rank :: self.ranks], self.options.batch
        for at in range(0, steps * size, size):
            yield self.rows[mine[at : at + size]]

    def parts(self):
        mine, size = self.rows[self.rank :: self.ranks], self.options.batch
        for at in range(0, len(mine), size):
            yield filled(mine[at : at + size], size)


class Records:
    """Rows of MindRecord files, read as they are needed."""

    def __init__(self, folder: Path, options: argparse.Namespace, rank: int, ranks: int) -> None:
        import mindspore.dataset as ds

        files = sorted(str(p) for p in folder.glob("*.mindrecord"))
        shard = {"num_shards": ranks, "shard_id": rank} if ranks > 1 else {}
        train = folder.name == "train"
        data = ds.MindDataset(files, columns_list=["input_ids"], shuffle=train, **shard)
        self.count = ds.MindDataset(files, columns_list=["input_ids"]).get_dataset_size()
        self.length, self.size = options.length, options.batch
        self.data = data.batch(options.batch, drop_remainder=train)

    def batches(self, _epoch: int, steps: int):
        for done, rows in enumerate(self.parts(), 1):
            yield rows
            if done == steps:
                return

    def parts(self):
        for (rows,) in self.data.create_tuple_iterator(num_epochs=1, output_numpy=True):
            yield filled(rows[:, : self.length].astype(np.int32), self.size)


def filled(rows: np.ndarray, size: int) -> np.ndarray:
    """A batch in its full size, for the graph is compiled once: rows of nothing, in which no word is hidden."""
    return np.pad(rows, ((0, size - len(rows)), (0, 0)), constant_values=PAD)


def dataset(options: argparse.Namespace, part: str, rank: int, ranks: int):
    folder = options.data / part
    kind = Packed if (folder / "tokens.npy").exists() else Records
    return kind(folder, options, rank, ranks)


def hidden(rows: np.ndarray, chance: np.random.Generator) -> tuple[ms.Tensor, ms.Tensor, ms.Tensor]:
    """(rows with 15 % of the words hidden, the words, where they were hidden)."""
    where = (chance.random(rows.shape) < 0.15) & (rows >= SPECIAL)
    return ms.Tensor(np.where(where, MASK, rows)), ms.Tensor(rows), ms.Tensor(where.astype(np.float32))


def batches(data, options, rank: int, epoch: int, steps: int):
    chance = np.random.default_rng([options.seed, epoch, rank])
    for rows in data.batches(epoch, steps):
        yield hidden(rows, chance)


def evaluate(network: nn.Cell, data, rank: int, total_of: nn.Cell) -> float:
    """Every rank judges its part with the same words hidden every time; the sums are of all."""
    network.set_train(False)
    right = count = 0.0
    chance = np.random.default_rng(rank)
    for rows in data.parts():
        inputs, words, where = hidden(rows, chance)
        guesses = network(inputs).asnumpy().argmax(axis=-1)
        mask = where.asnumpy()
        right, count = right + float(((guesses == words.asnumpy()) * mask).sum()), count + float(mask.sum())
    sums = total_of(ms.Tensor([right, count], ms.float32)).asnumpy()
    return float(sums[0] / sums[1])


def rate(step: int, total: int) -> float:
    """Up for a tenth, then down in a line."""
    warm = max(1, total // 10)
    return (step + 1) / warm if step < warm else max(0.02, (total - step) / max(1, total - warm))


class Sum(nn.Cell):
    """A sum over all ranks; in a cell because graph mode needs one."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.operation = ops.AllReduce() if ranks > 1 else None

    def construct(self, tensor):
        return tensor if self.operation is None else self.operation(tensor)


def dense(inside: int, outside: int) -> nn.Dense:
    # 0.02 at BERT-large's 1,024, and more where layers are narrow.
    return nn.Dense(inside, outside, weight_init=initializer.TruncatedNormal(0.64 * inside**-0.5))


class Layer(nn.Cell):
    """Attention over the row and a feed-forward part, each with a shortcut and a norm after it."""

    def __init__(self, hidden_size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.each = heads, hidden_size // heads
        self.all_three = dense(hidden_size, 3 * hidden_size)
        self.out = dense(hidden_size, hidden_size)
        self.wide, self.narrow = dense(hidden_size, 4 * hidden_size), dense(4 * hidden_size, hidden_size)
        self.norm1, self.norm2 = nn.LayerNorm((hidden_size,)), nn.LayerNorm((hidden_size,))
        self.gelu, self.softmax = nn.GELU(approximate=False), nn.Softmax(axis=-1)
        self.product = ops.BatchMatMul()
        self.product_turned = ops.BatchMatMul(transpose_b=True)

    def construct(self, x, hide):
        rows, length, size = x.shape
        parts = self.all_three(x).reshape((rows, length, 3, self.heads, self.each)).transpose((2, 0, 3, 1, 4))
        scores = self.product_turned(parts[0], parts[1]) * (self.each**-0.5) + hide
        mixed = (
            self.product(self.softmax(scores), parts[2]).transpose((0, 2, 1, 3)).reshape((rows, length, size))
        )
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.narrow(self.gelu(self.wide(x))))


class Bert(nn.Cell):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        small = initializer.TruncatedNormal(0.64 * options.hidden**-0.5)
        self.words = nn.Embedding(options.vocabulary, options.hidden, embedding_table=small)
        places = initializer.initializer(small, (options.length, options.hidden))
        self.places = ms.Parameter(places, name="places")
        self.norm = nn.LayerNorm((options.hidden,))
        self.layers = nn.CellList([Layer(options.hidden, options.heads) for _ in range(options.layers)])
        self.head = dense(options.hidden, options.vocabulary)

    def construct(self, rows):
        hide = (rows == PAD).astype(ms.float32).expand_dims(1).expand_dims(1) * -1e4
        x = self.norm(self.words(rows) + self.places[: rows.shape[1]])
        for layer in self.layers:
            x = layer(x, hide)
        return self.head(x)


class Loss(nn.Cell):
    """Cross entropy where words were hidden."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__()
        self.network = network
        self.entropy = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="none")

    def construct(self, rows, words, where):
        logits = self.network(rows)
        each = self.entropy(logits.reshape((-1, logits.shape[-1])), words.reshape((-1,)))
        where = where.reshape((-1,))
        return (each * where).sum() / (where.sum() + 1e-6)


if __name__ == "__main__":
    main()
