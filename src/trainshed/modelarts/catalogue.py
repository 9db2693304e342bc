"""What the platform offers by name: flavors (how many cards a node has) and engines (which framework)."""

from __future__ import annotations

import re

FLAVORS = {
    "modelarts.kat1.xlarge": 1,
    "modelarts.kat1.2xlarge": 2,
    "modelarts.kat1.4xlarge": 4,
    "modelarts.kat1.8xlarge": 8,
}
"""Flavors that we offer ourselves, with the devices of one node."""
ENGINES = {
    "mindspore": ("Ascend-Powered-Engine", "MindSpore-1.3-cann_5.0.2-python3.7-euleros2.8-aarch64"),
    "tensorflow": ("Ascend-Powered-Engine", "TF-1.15-cann_5.0.2-python3.7-euleros2.8-aarch64"),
    "pytorch": ("PyTorch", "PyTorch-1.8.0-python3.7"),
    "horovod": ("Horovod", "Horovod_0.20.0-python3.7"),
    "paddle": ("Paddle", "Paddle-2.2-python3.7"),
}
"""An engine's name and version for each of our launchers that the platform has one for."""
_SIZE = re.compile(r"\.(\d{0,4})xlarge")
_FRAMEWORKS = {name: name for name in ENGINES} | {"tf": "tensorflow"}


def devices_of(flavor: str) -> int | None:
    """Cards of one node, by the flavor's name; None for one whose name does not tell."""
    match = _SIZE.search(flavor)
    if match is None or match.end() != len(flavor):
        return None
    return int(match[1] or 1) or None


def launcher_of(*names: str) -> str | None:
    """The launcher that engine names or versions mean, by their first word: `TF-1.15-…` is tensorflow."""
    for name in names:
        first = re.split(r"[-_ ]", name.strip().lower(), maxsplit=1)[0]
        if first in _FRAMEWORKS:
            return _FRAMEWORKS[first]
    return None


def is_ascend(engine: str) -> bool:
    """Whether an engine of this name runs on Ascend devices."""
    return "ascend" in engine.lower()
