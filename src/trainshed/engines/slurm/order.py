"""What the driver of a run and the starter on each node say to each other, through srun's own pipes.

A starter prints one line of facts; the driver answers all of them with one
order. The agent's handover follows on the same pipe, so no secret is written
anywhere and the end of the pipe tells agents that the driver is gone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Facts:
    """What only the node itself knows."""

    index: int
    name: str
    address: str
    first_port: int
    devices: tuple[tuple[int, str | None], ...]
    cpus: int
    no_sandbox: str = ""
    """Why the node's processes cannot be enclosed; empty when they can."""
    problem: str = ""

    def to_line(self) -> str:
        return _MARK + json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Facts | None:
        """None when the line is somebody else's (a module system's greeting, for one)."""
        if not line.startswith(_MARK):
            return None
        data: dict[str, Any] = json.loads(line.removeprefix(_MARK))
        return cls(**(data | {"devices": tuple((i, a) for i, a in data["devices"])}))


@dataclass(frozen=True, slots=True)
class Question:
    """What a starter needs to know to find the facts."""

    kind: str
    devices: int
    interface: str = ""
    addresses: tuple[str, ...] = ()
    """Slurm's own address of each node, by node index."""
    indexes: tuple[tuple[int, ...], ...] = ()
    """The devices Slurm gave the job on each node, where it says."""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Question:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Order:
    """How the agent is started on every node."""

    isolation: str
    scratch: str
    visible: tuple[str, ...]
    writable: tuple[str, ...]
    hosts: str
    carried: dict[str, str] = field(default_factory=dict)
    """Where the run lies in an object store (`url`) and the variables that lead there; empty: it is in a folder."""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        data = json.loads(line)
        return cls(**(data | {"visible": tuple(data["visible"]), "writable": tuple(data["writable"])}))


_MARK = "trainshed-node "
