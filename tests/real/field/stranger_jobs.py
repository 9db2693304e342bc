"""Scripts in the style of each framework's public guide, which know nothing of Trainshed, and the jobs that run them.

Few combinations are run every time; TRAINSHED_FIELD=all runs every script in every shape on both engines.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "strangers"
SHAPES = ("1x1", "1x2", "2x2")
IS_ALL = os.environ.get("TRAINSHED_FIELD") == "all"


@dataclass(frozen=True)
class Stranger:
    """A script, and what its job needs to say beside the shape."""

    environment: str
    fields: dict[str, Any]
    shapes: tuple[str, ...] = SHAPES
    env: dict[str, str] = field(default_factory=dict)

    def job(self, name: str, shape: str) -> dict[str, Any]:
        nodes, _, devices = shape.partition("x")
        text = {"{nodes}": nodes, "{devices}": devices, "{ranks}": str(int(nodes) * int(devices))}
        return {
            "name": name,
            "launcher": self.environment,
            "environment": self.environment,
            "code": str(SCRIPTS),
            "resources": shape,
            "env": {"OMP_NUM_THREADS": "1"} | self.env,
        } | {key: _filled(value, text) for key, value in self.fields.items()}


def _filled(value: Any, text: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, text) for key, item in value.items()}
    if isinstance(value, str):
        for name, number in text.items():
            value = value.replace(name, number)
    return value


STRANGERS = {
    "ddp": Stranger("pytorch", {"entry": "ddp.py", "args": ["3", "2"], "parameters": {"batch_size": 16}}),
    "torchrun": Stranger("pytorch", {"command": "torchrun ddp.py 3 2 --batch_size 16"}),
    "accelerate": Stranger(
        "pytorch",
        {"entry": "accelerated.py", "requirements": "accelerate.txt", "parameters": {"cpu": None}},
    ),
    "lightning": Stranger(
        "pytorch",
        {
            "entry": "lightning_fit.py",
            "requirements": "lightning.txt",
            "parameters": {"nodes": "{nodes}", "devices": "{devices}"},
        },
    ),
    "deepspeed": Stranger(
        "pytorch",
        {"entry": "deepspeed_train.py", "requirements": "deepspeed.txt"},
        env={"DS_ACCELERATOR": "cpu"},
    ),
    "deepspeed-launcher": Stranger(
        "pytorch",
        {
            "command": "python -m deepspeed.launcher.runner --no_ssh --hostfile $TRAINSHED_HOSTFILE "
            "--node_rank $TRAINSHED_NODE --master_addr $MASTER_ADDR --master_port $MASTER_PORT deepspeed_train.py",
            "requirements": "deepspeed.txt",
            "services": ["ssh"],
        },
        env={"DS_ACCELERATOR": "cpu"},
    ),
    "mindspore": Stranger("mindspore", {"entry": "mindspore_guide.py"}),
    "paddle": Stranger("paddle", {"entry": "paddle_guide.py"}),
    "horovod": Stranger("horovod", {"entry": "horovod_guide.py"}),
    "horovodrun": Stranger(
        "horovod",
        {"command": "horovodrun -np {ranks} -hostfile $TRAINSHED_HOSTFILE python horovod_guide.py"},
    ),
    "mpirun": Stranger(
        "horovod",
        {
            "command": "mpirun --allow-run-as-root -np {ranks} -hostfile $TRAINSHED_HOSTFILE python mpi_world.py"
        },
    ),
    "keras": Stranger("tensorflow", {"entry": "keras_workers.py"}, env={"TF_USE_LEGACY_KERAS": "1"}),
    "parameter-servers": Stranger(
        "tensorflow", {"entry": "parameter_servers.py", "options": {"ps": 1}}, shapes=("4x1",)
    ),
}


def cases(few: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """(script, shape): those few, or all."""
    if IS_ALL:
        return [(name, shape) for name, item in STRANGERS.items() for shape in item.shapes]
    return [(name, shape) for name, shapes in few.items() for shape in shapes]


def check(name: str, shape: str, text: str) -> None:
    """Every rank trained to its end in a world of that shape, as the script itself says."""
    if name == "parameter-servers":
        assert "trained by 2 workers and 1 parameter servers" in text, text[-3000:]
        assert {f"worker {i} serves" in text for i in (0, 1)} | {"ps 0 serves" in text} == {True}, text[
            -3000:
        ]
        return
    nodes, _, devices = shape.partition("x")
    size = int(nodes) * int(devices)
    total = size * (size - 1) // 2
    said = sorted(re.findall(r"rank \d+ of \d+: sum of ranks \d+", text))
    assert said == [f"rank {rank} of {size}: sum of ranks {total}" for rank in range(size)], text[-3000:]
