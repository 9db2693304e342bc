"""What a node is busy with while no rank runs yet, or none any more: for those who wait for the run.

`node-<i>/progress.json` is there only during a phase that takes longer than a second. It is a
convenience: nothing is concluded from it, and a node that cannot write it works on.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from trainshed.files import read_regular, write_atomic

_NAME = "progress.json"
_PERIOD = 1.0
_LARGEST = 1 << 16


class Copied(Protocol):
    """The progress of a copy, as the store reports it."""

    @property
    def files(self) -> int: ...
    @property
    def files_total(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def bytes_total(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """A phase under way, and how much of it is done where it is a copy."""

    phase: str
    seconds: float
    files: int = 0
    files_total: int = 0
    bytes: int = 0
    bytes_total: int = 0


class ProgressFile:
    """A node's side: says what it does, at most once a second."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._due = 0.0
        self._copied: Copied | None = None

    def copied(self, state: Copied) -> None:
        """Progress reports of a copy, from whatever thread it runs in."""
        self._copied = state

    def show(self, phase: str, began: float) -> None:
        """Called often during a phase that began then (monotonic)."""
        now = time.monotonic()
        if now < max(self._due, began + _PERIOD):
            return
        self._due = now + _PERIOD
        done = self._copied
        numbers = (done.files, done.files_total, done.bytes, done.bytes_total) if done else ()
        with contextlib.suppress(OSError):
            write_atomic(self._path, json.dumps(asdict(NodeProgress(phase, round(now - began, 1), *numbers))))

    def clear(self) -> None:
        """The phase has ended."""
        self._copied = None
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_progress(folder: Path) -> NodeProgress | None:
    """What a node is busy with; None if it is not, or does not say."""
    try:
        return NodeProgress(**json.loads(read_regular(folder / _NAME, _LARGEST)))
    except (OSError, ValueError, TypeError):
        return None
