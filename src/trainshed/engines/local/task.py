"""What a submission hands to the driver of its run: one line on its standard input, written nowhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from trainshed.errors import TrainshedError

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
        try:
            data = json.loads(line)
            if data["version"] != VERSION:
                raise ValueError(f"format {data['version']}, this release reads {VERSION}")
            return cls(**(data | {name: tuple(data[name]) for name in ("visible", "writable")}))
        except (ValueError, KeyError, TypeError) as error:
            raise TrainshedError(
                f"cannot parse the driver's task: {error}",
                "submit with the same release of Trainshed that runs the job",
                code="other-release",
            ) from error
