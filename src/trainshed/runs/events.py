"""Events: what happened in a run, one JSON line each, typed and versioned, only ever appended.

Every writer has its own file, `events/<writer>.jsonl`, and readers merge them:

    submit                  the submitter, and a server that launches a run when its turn comes
    stop-<hex>              the one who requested the stop
    driver-<start>          the driver; an engine may start one again
    coordinator-<attempt>   the thread that coordinates all nodes of an attempt
    node-<node>-<attempt>   a node's agent
    reconciler              the process that concludes what no process of the run could record
    end                     the final state: made once, by the first process that records it, and never changed

A line is one write, so a killed writer leaves at worst an unfinished line,
which readers skip. A line of another release is refused, never guessed at.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainshed.errors import TrainshedError
from trainshed.files import read_regular
from trainshed.runs.outcome import Failure, Outcome

VERSION = 1
END = "end"
_LATEST = 1 << 40
"""No number in an event is larger: everything that prints a time can print this one."""


class UnreadableRunError(TrainshedError):
    """The record of a run cannot be read: damaged, or of another release."""

    code = "unreadable-run"


class Kind(StrEnum):
    """The content of an event."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    LAUNCHED = "launched"
    ACCEPTED = "accepted"
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
class Submitted:
    """The request, as far as lists and searches need it; the whole job is in job.yaml."""

    name: str
    engine: str
    shape: str
    launcher: str = ""
    contract: str = ""
    emulated: bool = False
    isolation: str = ""
    user: str = ""
    team: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    array: tuple[str, ...] = ()
    """The ids of all runs that were submitted together, if there are several."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the engine needs to know again later; its own to define."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A server keeps the run in its queue: it has no driver yet, and waits without one."""

    reason: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of the engine that the launch needs; all else is in job.yaml and the submission."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The turn of a queued run has come and a driver is being started; the run began when that says so."""

    isolation: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As in Submitted: only now they are known."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The engine took the run; `reference` is its own name for it (a job number)."""

    reference: str


@dataclass(frozen=True, slots=True)
class Pending:
    """The run waits (again) for nodes, after so many attempts."""

    reason: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A driver begins an attempt."""

    attempt: int
    nodes: str = ""
    reference: str = ""


@dataclass(frozen=True, slots=True)
class RanksStarted:
    """All nodes were ready and the ranks of an attempt were started."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A stop of the run was requested."""

    reason: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The coordinator stopped all nodes."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """An agent saw something go wrong."""

    attempt: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """The coordinator's account of how an attempt ended."""

    attempt: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Finished:
    """The final state, with what a list of ended runs shows, so that it need read nothing else."""

    outcome: Outcome
    name: str = ""
    engine: str = ""
    shape: str = ""
    user: str = ""
    emulated: bool = False
    attempt: int = 1
    submitted: float | None = None
    started: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseFinished:
    """A node spent so many seconds in a phase."""

    attempt: int
    phase: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    attempt: int
    process: str
    pid: int


@dataclass(frozen=True, slots=True)
class ProcessExited:
    attempt: int
    process: str
    returncode: int


@dataclass(frozen=True, slots=True)
class OutputsUnsaved:
    """A node could not save its outputs: the only copy of them is there, and must stay."""

    problem: str


@dataclass(frozen=True, slots=True)
class Note:
    """What the reader of the run should know."""

    text: str


Body = (
    Submitted
    | Queued
    | Launched
    | Accepted
    | Pending
    | AttemptStarted
    | RanksStarted
    | StopRequested
    | Stopping
    | FailureSeen
    | AttemptFinished
    | Finished
    | PhaseFinished
    | ProcessStarted
    | ProcessExited
    | OutputsUnsaved
    | Note
)
_BODIES: dict[Kind, type[Any]] = {
    Kind.SUBMITTED: Submitted,
    Kind.QUEUED: Queued,
    Kind.LAUNCHED: Launched,
    Kind.ACCEPTED: Accepted,
    Kind.PENDING: Pending,
    Kind.ATTEMPT: AttemptStarted,
    Kind.RUNNING: RanksStarted,
    Kind.STOP_REQUESTED: StopRequested,
    Kind.STOPPING: Stopping,
    Kind.FAILURE: FailureSeen,
    Kind.ATTEMPT_FINISHED: AttemptFinished,
    Kind.FINISHED: Finished,
    Kind.PHASE: PhaseFinished,
    Kind.STARTED: ProcessStarted,
    Kind.EXITED: ProcessExited,
    Kind.UNSAVED: OutputsUnsaved,
    Kind.NOTE: Note,
}
_KINDS: dict[type[Any], Kind] = {body: kind for kind, body in _BODIES.items()}
_FIELDS: dict[type[Any], tuple[tuple[str, bool], ...]] = {}
"""Of each body: its fields, and whether each must be there."""
_NUMBER = (int, float)
_TYPES: dict[str, type | tuple[type, ...]] = {
    "time": _NUMBER, "attempt": int, "pid": int, "returncode": int, "seconds": _NUMBER, "emulated": bool,
    "labels": dict, "settings": dict, "options": dict, "array": list,
    "submitted": (int, float, type(None)), "started": (int, float, type(None)),
}  # fmt: skip
"""Fields that are not text."""
_LARGEST = 64 << 20
"""Bytes of one writer: hundreds of thousands of events."""
_PROCESS = re.compile(r"[\w.-]{1,100}\Z")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: when, who wrote it, and what is known of it."""

    time: float
    writer: str
    body: Body

    @property
    def kind(self) -> Kind:
        return _KINDS[type(self.body)]


def to_line(body: Body, at: float) -> bytes:
    data: dict[str, Any] = {"v": VERSION, "time": round(at, 4), "kind": _KINDS[type(body)].value}
    for name, required in _fields(type(body)):
        value = getattr(body, name)
        if name in ("failure", "outcome"):
            data |= value.to_json()
        elif required or (value not in (None, "", False) and value != () and value != {}):
            data[name] = value
    # File names may contain invalid characters: they are replaced.
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def from_line(line: bytes, writer: str) -> Event | None:
    """The event of a line; None for one that a killed writer left unfinished."""
    try:
        data = json.loads(line)
        if b"\\ud" in line.lower():  # half a character, which cannot be printed
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        return None
    except RecursionError as error:
        raise UnreadableRunError(f"events of {writer}: a line is nested too deeply") from error
    if not isinstance(data, dict) or data.get("v") != VERSION:
        found = data.get("v", "no version") if isinstance(data, dict) else type(data).__name__
        raise UnreadableRunError(
            f"events of {writer} were written by another release of Trainshed "
            f"(format {found!s:.40}, this one reads {VERSION})",
            "read the run with the release that made it",
        )
    try:
        kind = Kind(data["kind"])
        body = _BODIES[kind]
        values: dict[str, Any] = {}
        for name, required in _fields(body):
            if name == "failure":
                values[name] = Failure.from_json(data)
            elif name == "outcome":
                values[name] = Outcome.from_json(data)
            elif required or name in data:
                values[name] = _checked(name, data[name])
        return Event(float(_checked("time", data["time"])), writer, body(**values))
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadableRunError(
            f"events of {writer}: {data.get('kind')!s:.40} is not as this release knows it: {error}",
            "read the run with the release that made it",
        ) from error


def _checked(name: str, value: Any) -> Any:
    """The value of a field; ValueError when it is not what this release writes there."""
    good = isinstance(value, _TYPES.get(name, str))
    if good and isinstance(value, int | float):
        good = -_LATEST < value < _LATEST
    elif good and name in ("labels", "options", "array"):
        items = value if name == "array" else value.values()
        good = all(isinstance(item, str) for item in items)
    elif good and name == "process":  # its log has this name
        good = bool(_PROCESS.match(value))
    if not good:
        raise ValueError(f"{name} is {value!r:.40}")
    return tuple(value) if name == "array" else value


def _fields(body: type[Any]) -> tuple[tuple[str, bool], ...]:
    known = _FIELDS.get(body)
    if known is None:
        from dataclasses import MISSING

        known = tuple(
            (item.name, item.default is MISSING and item.default_factory is MISSING) for item in fields(body)
        )
        _FIELDS[body] = known
    return known


@dataclass(frozen=True, slots=True)
class EventWriter:
    """The one writer of one event file."""

    folder: Path
    name: str

    def append(self, body: Body, *more: Body) -> Event:
        """Write an event, or several as one, at the end of the file; all is there when this returns."""
        at = time.time()
        data = b"".join(to_line(item, at) for item in (body, *more))
        path = self.folder / f"{self.name}.jsonl"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            handle = os.open(path, flags, 0o644)
        except FileNotFoundError:
            self.folder.mkdir(exist_ok=True)
            handle = os.open(path, flags, 0o644)
        try:
            size = os.fstat(handle).st_size
            # A writer killed in the middle of a line must not spoil the next one.
            if size and os.pread(handle, 1, size - 1) != b"\n":
                data = b"\n" + data
            written = os.write(handle, data)
            if written < len(data):
                raise OSError(28, "No space left on device", str(path))
        finally:
            os.close(handle)
        return Event(at, self.name, body)


def read(path: Path) -> Iterator[Event]:
    """All whole events of a file, in order; none if it does not exist."""
    writer = path.stem
    for line in _content(path).split(b"\n"):
        if line.strip() and (event := from_line(line, writer)) is not None:
            yield event


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _LARGEST)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UnreadableRunError(f"{path.name} cannot be read: {error.strerror}") from error
