"""What an agent gets when it starts and that is written nowhere: the run's secret, the job's secrets.

It comes as one JSON line on standard input (which then stays open as a sign
that the driver lives), or in a file that only its owner can read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainshed import files
from trainshed.runs import documents

VERSION = 2
_LIMIT = 300.0
"""Seconds for the driver to say what is to be done."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The agent's start: `lifeline` says whether the end of standard input means the driver's death."""

    secret: str
    attempt: int = 1
    lifeline: bool = True
    secrets: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    """Put before every process: how it enters a container."""
    root: str = ""
    """Where the node's private folders lie for an agent that stays outside its container."""
    hidden: tuple[str, ...] = ()
    """Folders that the agent has and its processes must not see; empty where nothing can hide them."""
    cache: str = ""
    """Where inputs are kept between runs; empty: they are not."""
    register_limit: float = 120.0
    beats: bool = False
    """Whether the driver expects signs of life on the agent's standard input, which is then a socket."""
    version: int = VERSION

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes | str) -> Handover:
        def make(data: Mapping[str, Any]) -> Handover:
            return cls(**{**data, **{name: tuple(data[name]) for name in ("prefix", "hidden")}})

        remedy = "driver and nodes must run the same release of Trainshed"
        return documents.understand(line, VERSION, make, "the agent's handover", remedy)


def read_handover(path: str | None) -> Handover:
    """From a file (given by the engine), or else from standard input."""
    if path is not None:
        return Handover.from_line(Path(path).read_text())
    line = files.read_line(sys.stdin.fileno(), _LIMIT)  # no further than its end: a word to stop may follow
    if not line:
        raise SystemExit("trainshed agent: its driver is gone, or gave it nothing to do")
    return Handover.from_line(line)
