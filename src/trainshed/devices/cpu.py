"""CPU ranks: slots rather than devices, more than cores, since small jobs may share them."""

from __future__ import annotations

import os

from trainshed.devices.base import Device, DeviceReader, Found, no_reader


def slots() -> int:
    """How many CPU ranks this machine takes at once, unless an engine is configured otherwise."""
    return max(1024, 64 * (os.cpu_count() or 1))


def find() -> Found:
    return Found(tuple(Device(index) for index in range(slots())))


def visible_env(_indexes: str) -> dict[str, str]:
    return {}


def reader() -> tuple[DeviceReader, str]:
    return no_reader, ""
