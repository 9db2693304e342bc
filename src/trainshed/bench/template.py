"""`trainshed bench new`: a workload folder to start from, small enough to read at once, able to run."""

from __future__ import annotations

from pathlib import Path

from trainshed.bench.workload import NAME
from trainshed.errors import UsageError

WORKLOAD = """\
# A workload: what is run, on which data, to which quality, and what is measured.
name: {name}
version: "1"
model: linear model
sample: samples
implementations:
  {framework}:
    code: .
    entry: train.py
    launcher: {framework}
{environment}scales:
  tiny:
    shape: 1x2                # nodes x devices a node
    runs: 3
    dataset: {{name: points, folder: data, maker: make_data.py, checksum: ""}}
    target: {{name: accuracy, value: 0.9}}
    parameters: {{epochs: 5}}
    min_steps: 50
"""

MAKER = '''\
"""Makes the data set in the folder given: points and on which side of a line they lie."""

import random
import sys
from pathlib import Path

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
chance = random.Random(1)
for name, count in (("train", 2000), ("val", 500)):
    points = [(chance.uniform(-1, 1), chance.uniform(-1, 1)) for _ in range(count)]
    lines = (f"{x:.6f} {y:.6f} {int(2 * x + y > 0.3)}\\n" for x, y in points)
    (folder / f"{name}.txt").write_text("".join(lines))
'''

TRAIN = '''\
"""Trains a linear model and tells the meter what it does. Put your own training in its place."""

import argparse
import math
import os
import random
from pathlib import Path

from trainshed_meter import Meter, dataset_checksum

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--target", type=float, default=0.9)
options = parser.parse_args()


def read(name):
    return [tuple(map(float, line.split())) for line in (options.data / name).read_text().splitlines()]


meter = Meter()
meter.seed(options.seed)
with meter.phase("dataload"):
    train, val = read("train.txt"), read("val.txt")
    meter.dataset("points", dataset_checksum(str(options.data)), len(train), len(val))
rank, ranks = int(os.environ.get("TRAINSHED_RANK", 0)), int(os.environ.get("TRAINSHED_WORLD_SIZE", 1))
a = b = c = 0.0
meter.start(global_batch_size=20 * ranks)
for _ in range(options.epochs):
    with meter.epoch():
        random.Random(options.seed + rank).shuffle(train)
        mine = train[: len(train) // ranks]
        for at in range(0, len(mine), 20):
            batch = mine[at : at + 20]
            for x, y, side in batch:
                wrong = side - 1 / (1 + math.exp(-(a * x + b * y + c)))
                a, b, c = a + wrong * x, b + wrong * y, c + wrong
            meter.step(samples=len(batch))
    with meter.evaluation():
        accuracy = sum((a * x + b * y + c > 0) == bool(side) for x, y, side in val) / len(val)
    meter.quality("accuracy", accuracy)
print(f"accuracy={accuracy:.4f}")
meter.stop()
'''


def make(folder: Path, framework: str) -> list[Path]:
    """Write the folder's files; one that exists is never overwritten."""
    name = folder.resolve().name
    if not NAME.match(name):
        raise UsageError(f"{name!r} is no name for a workload", "use small letters, digits, dots and dashes")
    if framework not in {"pytorch", "command"}:
        raise UsageError(
            f"--framework {framework}", "choose pytorch or command, and change workload.yaml later"
        )
    environment = f"    environment: {framework}\n" if framework != "command" else ""
    files = {
        "workload.yaml": WORKLOAD.format(name=name, framework=framework, environment=environment),
        "make_data.py": MAKER,
        "train.py": TRAIN,
    }
    there = [f for f in files if (folder / f).exists()]
    if there:
        raise UsageError(f"{folder / there[0]} exists", "choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text, "utf-8")
    return [folder / f for f in files]
