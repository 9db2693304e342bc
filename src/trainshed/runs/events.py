"""Events: what happened in a run, one JSON line each, only ever appended.

Each writer has a file of its own: the run's `events.jsonl` for whoever
submits, drives or stops it and for the coordinator, `node-<i>/events.jsonl`
for that node's agent. A line is one write, so a killed writer leaves at worst
an unfinished last line, which readers skip.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Kind(StrEnum):
    """What an event tells."""

    SUBMITTED = "submitted"
    PENDING = "pending"
    ATTEMPT = "attempt"
    RUNNING = "running"
    STOP_REQUESTED = "stop-requested"
    STOPPING = "stopping"
    FAILURE = "failure"
    ATTEMPT_FINISHED = "attempt-finished"
    FINISHED = "finished"
    PHASE = "phase"
    STARTED = "started"
    EXITED = "exited"
    UNSAVED = "unsaved"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, when, and what is known of it."""

    kind: Kind
    time: float
    data: dict[str, Any] = field(default_factory=dict)


def append(path: Path, kind: Kind, /, **data: Any) -> Event:
    """Write one event at the end of a file; it is there when this returns."""
    event = Event(kind, time.time(), data)
    line = json.dumps({"time": round(event.time, 4), "kind": kind.value, **data}, ensure_ascii=False) + "\n"
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(handle).st_size
        # A writer killed in the middle of a line must not spoil the next one.
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = "\n" + line
        os.write(handle, line.encode())
    finally:
        os.close(handle)
    return event


def read(path: Path) -> Iterator[Event]:
    """All whole events of a file, in order; none if it does not exist."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            yield Event(Kind(data.pop("kind")), float(data.pop("time")), data)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
