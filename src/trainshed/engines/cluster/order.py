"""What the driver of a run and the starter on each node of a cluster send each other, one line each.

    driver → all starters   Question   what each needs to know to find its facts
    starter → driver        Facts      what only the node itself knows
    driver → all starters   Order      how the agent is started; its handover follows on the same pipe

Typed and versioned: a line of another release is refused in one sentence, never
guessed at. The exchange goes through the pipes with which the cluster's own
launcher (srun) starts the starters: authenticated by the cluster, with no
secret on disk, and their end shows agents that the driver is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from trainshed.runs import documents

VERSION = 1
_PREFIX = "trainshed-node "
_Message = TypeVar("_Message")


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
    version: int = VERSION

    def to_line(self) -> str:
        return _PREFIX + json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Facts | None:
        """None when the line is somebody else's (a module system's greeting, for one)."""
        if not line.startswith(_PREFIX):
            return None

        def make(data: Mapping[str, Any]) -> Facts:
            return cls(**{**data, "devices": tuple((i, a) for i, a in data["devices"])})

        return _read(line.removeprefix(_PREFIX), "a node's facts", make)


@dataclass(frozen=True, slots=True)
class Question:
    """What a starter needs to know to find the facts."""

    kind: str
    devices: int
    interface: str = ""
    addresses: tuple[str, ...] = ()
    """The cluster's own address of each node, by node index."""
    indexes: tuple[tuple[int, ...], ...] = ()
    """The devices that the cluster gave the job on each node, where it says."""
    version: int = VERSION

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Question:
        def make(data: Mapping[str, Any]) -> Question:
            indexes = tuple(tuple(numbers) for numbers in data["indexes"])
            return cls(**{**data, "addresses": tuple(data["addresses"]), "indexes": indexes})

        return _read(line, "the driver's question", make)


@dataclass(frozen=True, slots=True)
class Order:
    """How the agent is started on every node."""

    attempt: int
    isolation: str
    scratch: str
    visible: tuple[str, ...]
    writable: tuple[str, ...]
    hosts: str
    place: Mapping[str, str] = field(default_factory=dict)
    """Where the run is in an object store (`url`) and the variables needed to reach it; empty: it is in a folder."""
    version: int = VERSION

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        def make(data: Mapping[str, Any]) -> Order:
            return cls(**{**data, "visible": tuple(data["visible"]), "writable": tuple(data["writable"])})

        return _read(line, "the driver's order", make)


def _read(line: str | bytes, what: str, make: Callable[[Mapping[str, Any]], _Message]) -> _Message:
    remedy = "driver and nodes must run the same release of Trainshed"
    return documents.understand(line, VERSION, make, what, remedy)
