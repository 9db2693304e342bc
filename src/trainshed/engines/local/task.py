"""What a submission hands to the driver of its run: one line on its standard input, written nowhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainshed.runs import documents

VERSION = 1


@dataclass(frozen=True, slots=True)
class Task:
    """How a run's agents are started."""

    secret: str
    secrets: Mapping[str, str]
    attached: bool
    attempts: int
    isolation: str
    scratch: str
    cache: str
    visible: tuple[str, ...]
    writable: tuple[str, ...]
    version: int = VERSION

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Task:
        def make(data: Mapping[str, Any]) -> Task:
            return cls(**{**data, **{name: tuple(data[name]) for name in ("visible", "writable")}})

        remedy = "submit with the same release of Trainshed that runs the job"
        return documents.understand(line, VERSION, make, "the driver's task", remedy)
