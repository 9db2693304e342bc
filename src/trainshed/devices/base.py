"""What all kinds of devices share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Attempt = Callable[[str, Callable[[], Any]], Any]
"""Reads one named value; a failure is noted once and gives None."""
DeviceReader = Callable[[Attempt], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node: its index there and, for Ascend, its own network address."""

    index: int
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Devices of one kind, or why none were found."""

    devices: tuple[Device, ...]
    reason: str = ""


def no_reader(_attempt: Attempt) -> list[dict[str, Any]]:
    """For what has nothing to read."""
    return []
