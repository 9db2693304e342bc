"""What an agent is told when it starts and that is written nowhere: the run's secret, the job's secrets.

It comes as one JSON line on standard input (which then stays open as a sign
that the driver lives), or in a file that only its owner can read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


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
    cache: str = ""
    """Where inputs are kept between runs; empty: they are not."""
    register_limit: float = 120.0

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes | str) -> Handover:
        data = json.loads(line)
        return cls(**(data | {"prefix": tuple(data["prefix"])}))


def read_handover(path: str | None) -> Handover:
    """From a file (given by the engine), or else from standard input."""
    if path is not None:
        return Handover.from_line(Path(path).read_text())
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 1)  # no further than the line's end: a word to stop may follow
        if not piece:
            raise SystemExit("trainshed agent: started by hand? it is given its task by an engine")
        line += piece
    return Handover.from_line(line)
