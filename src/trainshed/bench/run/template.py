"""`trainshed bench new`: a workload folder to start from, small enough to read at once, able to run."""

from __future__ import annotations

from pathlib import Path

from trainshed.bench.run.workload import NAME
from trainshed.errors import UsageError

WORKLOAD = """\
# A workload: what is run, on which data, to which quality, and what is measured.
name: {name}
version: "1"
model: small network
sample: samples
metered: true                 # every rank measures with the meter
implementations:
  {framework}:
    code: .
    entry: train.py
    launcher: {framework}
    # environment: {framework}      # once the script imports a framework; `trainshed env create` makes it
scales:
  tiny:
    shape: 1x2                # nodes x devices per node
    runs: 3
    dataset: {{name: points, folder: data, maker: make_data.py, checksum: ""}}
    target: {{name: accuracy, value: 0.85}}
    parameters: {{epochs: 100}}
    min_steps: 50
    max_spread: 0.5           # beyond it, or beyond max_interval, the result is unstable
"""

MAKER = '''\
"""Makes the data set in the folder given: points and whether they are in a ring."""

import random
import sys
from pathlib import Path

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
chance = random.Random(1)
for name, count in (("train", 20000), ("val", 2000)):
    points = [(chance.uniform(-1, 1), chance.uniform(-1, 1)) for _ in range(count)]
    lines = (f"{x:.6f} {y:.6f} {int(0.2 < x * x + y * y < 0.8)}\\n" for x, y in points)
    (folder / f"{name}.txt").write_text("".join(lines))
'''

TRAIN = '''\
"""Trains a small network, each rank on its part, and tells the meter what it does. Put your training in its place."""

import argparse
import math
import os
import random
from pathlib import Path

from trainshed_meter import Meter, dataset_checksum

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path)
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--target", type=float, default=0.85)
options = parser.parse_args()


def read(name):
    return [tuple(map(float, line.split())) for line in (options.data / name).read_text().splitlines()]


def forward(x, y):
    found = [math.tanh(a * x + b * y + c) for a, b, c, _ in units]
    return found, 1 / (1 + math.exp(-sum(unit[3] * h for unit, h in zip(units, found)) - bias[0]))


meter = Meter()
meter.seed(options.seed)
with meter.phase("dataload"):
    train, val = read("train.txt"), read("val.txt")
    meter.dataset("points", dataset_checksum(str(options.data)), len(train), len(val))
rank, ranks = int(os.environ.get("TRAINSHED_RANK", 0)), int(os.environ.get("TRAINSHED_WORLD_SIZE", 1))
chance = random.Random(options.seed + rank)
units = [[chance.uniform(-2, 2) for _ in range(4)] for _ in range(12)]
bias, mine = [0.0], train[rank % ranks :: ranks]
meter.start(global_batch_size=20 * ranks)
for epoch in range(options.epochs):
    rate = 0.1 * 0.95**epoch
    with meter.epoch():
        chance.shuffle(mine)
        for at in range(0, len(mine) - 19, 20):
            for x, y, inside in mine[at : at + 20]:
                found, guess = forward(x, y)
                wrong = rate * (inside - guess)
                for unit, h in zip(units, found):
                    back = wrong * unit[3] * (1 - h * h)
                    unit[3] += wrong * h
                    unit[0], unit[1], unit[2] = unit[0] + back * x, unit[1] + back * y, unit[2] + back
                bias[0] += wrong
            meter.step(samples=20)
    with meter.evaluation():
        accuracy = sum((forward(x, y)[1] > 0.5) == bool(inside) for x, y, inside in val) / len(val)
    meter.quality("accuracy", accuracy)
    if rank == 0:
        print(f"epoch {epoch + 1} accuracy={accuracy:.4f}", flush=True)
meter.stop()
'''


def make(folder: Path, framework: str) -> list[Path]:
    """Write the folder's files; one that exists is never overwritten."""
    name = folder.resolve().name
    if not NAME.match(name):
        raise UsageError(f"invalid workload name: {name!r}", "use small letters, digits, dots and dashes")
    if framework not in {"pytorch", "command"}:
        raise UsageError(
            f"--framework {framework}", "choose pytorch or command, and change workload.yaml later"
        )
    files = {
        "workload.yaml": WORKLOAD.format(name=name, framework=framework),
        "make_data.py": MAKER,
        "train.py": TRAIN,
    }
    existing = [f for f in files if (folder / f).exists()]
    if existing:
        raise UsageError(f"{folder / existing[0]} exists", "choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text, "utf-8")
    return [folder / f for f in files]
