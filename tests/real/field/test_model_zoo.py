"""Scripts with the structure of the public model zoo run unchanged under both ModelArts contracts, emulated."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support import Shed

pytestmark = [pytest.mark.contracts, pytest.mark.real, pytest.mark.field, pytest.mark.timeout(600)]

CODE = Path(__file__).parent / "zoo"
RANKS = {"1x1": 1, "1x2": 2, "2x2": 4}
COPYING = {"1x1": [0], "1x2": [0], "2x2": [0, 2]}
CONTRACTS = ("modelarts-v1", "modelarts-v2")
# Both scripts, both contracts, all shapes; each script with ranks that share a node and with a second node.
FEW = [
    ("lenet", "modelarts-v1", "1x1"),
    ("lenet", "modelarts-v2", "2x2"),
    ("resnet", "modelarts-v1", "2x2"),
    ("resnet", "modelarts-v2", "1x2"),
]
ALL = [(model, contract, shape) for model in ("lenet", "resnet") for contract in CONTRACTS for shape in RANKS]


def _pictures(count: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Ten kinds of pictures that even a small network can tell apart: each brighter than the one before."""
    random = np.random.default_rng(count)
    labels = random.integers(0, 10, count, dtype=np.uint8)
    noise = random.integers(0, 20, (count, *shape), dtype=np.uint8)
    return (noise + 23 * labels.reshape(-1, *[1] * len(shape))).astype(np.uint8), labels


def _mnist(folder: Path, name: str, count: int) -> None:
    folder.mkdir(parents=True)
    pictures, labels = _pictures(count, (28, 28))
    head = struct.pack(">IIII", 2051, count, 28, 28)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(head + pictures.tobytes())
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def _cifar10(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        # MindSpore takes files of exactly 10,000 records.
        pictures, labels = _pictures(10_000, (3072,))
        (folder / name).write_bytes(np.column_stack([labels, pictures]).astype(np.uint8).tobytes())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shed]:
    """A Trainshed with an object store that holds both data sets."""
    home = tmp_path_factory.mktemp("zoo") / "home"
    home.mkdir()
    shed, data = Shed(home), home.parent / "data"
    _mnist(data / "lenet" / "train", "train", 640)
    _mnist(data / "lenet" / "test", "t10k", 160)
    _cifar10(data / "resnet" / "cifar10")
    try:
        for words in (["store", "up"], ["store", "user", "add", "zoo"], ["cp", f"{data}/", "s3://zoo/data/"]):
            done = shed.cli(*words)
            assert done.returncode == 0, done.stderr
        yield shed
    finally:
        shed.cli("store", "down")


@pytest.mark.parametrize(
    ("model", "contract", "shape"), ALL if os.environ.get("TRAINSHED_FIELD") == "all" else FEW
)
def test_it_trains_to_the_end_and_its_results_are_in_the_store(
    model: str, contract: str, shape: str, store: Shed, tmp_path: Path
) -> None:
    target = f"s3://zoo/out/{model}/{contract}/{shape}/"
    job = {
        "name": model,
        "launcher": "mindspore",
        "environment": "mindspore",
        "contract": contract,
        "code": str(CODE),
        "entry": f"train_{model}.py",
        "resources": f"{shape}:ascend",
        "parameters": {"enable_modelarts": True, "config_path": f"{model}_config.yaml"},
        "inputs": [{"name": "data_url", "source": f"s3://zoo/data/{model}/"}],
        "outputs": [{"name": "train_url", "target": target}],
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(job))
    done = store.cli("run", path, "--emulate", timeout=500)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert "computed in float32" in done.stdout
    evaluated = set(re.findall(r"^\[rank-(\d+)\] .*(?:Accuracy:\{|epoch 1 \{'acc')", done.stdout, re.M))
    assert evaluated == {str(rank) for rank in range(RANKS[shape])}, done.stdout[-6000:]
    fetched = tmp_path / "fetched"
    assert store.cli("cp", target, f"{fetched}/").returncode == 0
    results = {file.name: json.loads(file.read_text()) for file in fetched.rglob("accuracy_*.json")}
    # Such scripts let one process of each node copy, which does not wait for its neighbours.
    for rank in COPYING[shape]:
        found = results[f"accuracy_{rank}.json"]
        assert (found["rank"], found["size"]) == (rank, RANKS[shape])
    assert list(fetched.rglob("*.ckpt"))
