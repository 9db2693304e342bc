"""Logs in which a job's secrets do not appear, even when its script prints them.

A job without secrets writes to its log itself. With secrets its output passes
through here, where each value is replaced by `***`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_SHORTEST = 4
"""Shorter values would blot out ordinary words, and are no secrets."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log being written. `stream` is closed once the process has been given it."""

    path: Path
    stream: BinaryIO
    copier: threading.Thread | None = None

    def settle(self) -> None:
        """After the process has ended: wait, briefly, until all it wrote is in the file."""
        if self.copier:
            self.copier.join(1.0)


def open_log(path: Path, secrets: Iterable[str]) -> Log:
    """Begin (or go on with) the log at `path`."""
    hidden = sorted({s.encode() for s in secrets if len(s) >= _SHORTEST}, key=len, reverse=True)
    if not hidden:
        return Log(path, path.open("ab"))
    read, write = os.pipe()
    copier = threading.Thread(target=_copy, args=(read, path, hidden), daemon=True)
    copier.start()
    return Log(path, os.fdopen(write, "wb"), copier)


def _copy(read: int, path: Path, hidden: list[bytes]) -> None:
    held = b""
    with os.fdopen(read, "rb", buffering=0) as source, path.open("ab", buffering=0) as log:
        while chunk := source.read(1 << 16):
            data = mask(held + chunk, hidden)
            keep = _unfinished(data, hidden)
            held = data[len(data) - keep :] if keep else b""
            log.write(data[: len(data) - keep])
        log.write(held)


def mask(data: bytes, hidden: list[bytes]) -> bytes:
    for value in hidden:
        data = data.replace(value, b"***")
    return data


def _unfinished(data: bytes, hidden: list[bytes]) -> int:
    """How many bytes at the end may be the beginning of a secret."""
    longest = min(len(data), max(map(len, hidden)) - 1)
    for size in range(longest, 0, -1):
        end = data[-size:]
        if any(value.startswith(end) for value in hidden):
            return size
    return 0
