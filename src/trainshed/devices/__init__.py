"""The devices of a machine, one file per kind: find them, make them visible, read them.

Found and read by the vendors' own tools, never guessed. This package knows no
framework and no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainshed.devices import ascend, cpu, nvidia
from trainshed.devices.base import Attempt, DeviceReader, Found
from trainshed.spec.kinds import DeviceKind

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Attempt", "DeviceReader", "Found", "find", "reader", "visible_env"]

_KINDS: dict[DeviceKind, ModuleType] = {
    DeviceKind.CPU: cpu,
    DeviceKind.NVIDIA: nvidia,
    DeviceKind.ASCEND: ascend,
}


def find(kind: DeviceKind) -> Found:
    """What this machine has of a kind."""
    found: Found = _KINDS[kind].find()
    return found


def reader(kind: DeviceKind) -> tuple[DeviceReader, str]:
    """How the machine's devices are read once a second, and why not if they cannot be."""
    result: tuple[DeviceReader, str] = _KINDS[kind].reader()
    return result


def visible_env(kind: DeviceKind, indexes: tuple[int, ...], cpus: int, emulate: bool) -> dict[str, str]:
    """Variables by which frameworks see just these devices; `emulate`: the CPU stands in for them."""
    env: dict[str, str] = _KINDS[kind].visible_env(",".join(map(str, indexes)))
    if kind is DeviceKind.CPU or emulate:
        env["OMP_NUM_THREADS"] = str(max(1, cpus // max(1, len(indexes))))
    return env
