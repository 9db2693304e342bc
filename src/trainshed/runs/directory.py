"""The run directory: the truth about a run. Everything that shows a run reads this.

job.yaml  plan.json  alive.lock  reconcile.lock  driver.log
events/<writer>.jsonl  what happened, one file per writer
node-<i>/              rank-<r>.log  metrics.jsonl  agent.log  alive.lock
outputs/node-<i>/<name>/  outputs without a target
place.json             where the truth lies, if this folder is a reader's copy
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainshed.errors import NotFoundError, UsageError
from trainshed.files import FULL, read_regular, write_atomic
from trainshed.plan.model import check_version
from trainshed.runs import events
from trainshed.runs.events import (
    END,
    Accepted,
    AttemptStarted,
    Event,
    EventWriter,
    FailureSeen,
    Finished,
    Launched,
    Note,
    OutputsUnsaved,
    Queued,
    StopRequested,
    Submitted,
    UnreadableRunError,
)
from trainshed.runs.outcome import Outcome

_RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_NODE = re.compile(r"^node-(0|[1-9][0-9]{0,6})\Z")
_REMOVED = ".removed-"
_LARGEST_PLAN = 512 << 20
_RESERVE = 64 << 10


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One run's folder."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def home(self) -> Path:
        """The Trainshed home that the run belongs to."""
        return self.path.parent.parent

    @property
    def events_folder(self) -> Path:
        return self.path / "events"

    @property
    def alive_path(self) -> Path:
        return self.path / "alive.lock"

    def is_recorded(self) -> bool:
        """Whether anything was recorded of it, readable or not.

        A folder that is being made has no event yet, or an empty file into which the first is about to be written.
        """
        try:
            if any(not path.is_file() or path.stat().st_size for path in self.events_folder.iterdir()):
                return True
        except FileNotFoundError:
            pass
        except OSError:
            return True
        return (self.path / "events.jsonl").exists()

    def node(self, index: int) -> Path:
        return self.path / f"node-{index}"

    def outputs(self, node: int) -> Path:
        """Where a node's outputs lie that have no target of their own; the same for any number of nodes."""
        return self.path / "outputs" / f"node-{node}"

    def node_indexes(self) -> list[int]:
        found = (_NODE.match(path.name) for path in self.path.glob("node-*") if path.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def writer(self, name: str) -> EventWriter:
        return EventWriter(self.events_folder, name)

    def node_writer(self, node: int, attempt: int) -> EventWriter:
        return self.writer(f"node-{node}-{attempt}")

    def events(self, *writers: str) -> list[Event]:
        """All events by time, or only those of writers whose names begin so."""
        try:
            names = sorted(path.name for path in self.events_folder.iterdir())
        except FileNotFoundError:
            self._check_release()
            return []
        except OSError as error:
            raise UnreadableRunError(f"its events cannot be read: {error.strerror}") from error
        wanted = (
            name
            for name in names
            if name.endswith(".jsonl")
            and not name.startswith(".")
            and (not writers or name.startswith(writers))
        )
        found = [event for name in wanted for event in events.read(self.events_folder / name)]
        return sorted(found, key=lambda event: event.time)

    def submitted(self) -> Event:
        """The run's first event; UnreadableRunError when it has none."""
        first = next(events.read(self.events_folder / "submit.jsonl"), None)
        if first is None or not isinstance(first.body, Submitted):
            self._check_release()
            raise UnreadableRunError("it does not say how it was submitted", f"look at {self.events_folder}")
        return first

    def submission(self) -> Submitted:
        """The request; of a run that waited in a queue, with what was known only when it was launched."""
        body = self.submitted().body
        assert isinstance(body, Submitted)
        if launches := self.launches():
            last = launches[-1].body
            assert isinstance(last, Launched)
            return replace(body, isolation=last.isolation, settings=last.settings)
        return body

    def queued(self) -> Queued | None:
        """What was recorded when a server took the run into its queue; None for one that started at once."""
        return next((e.body for e in self._submitter() if isinstance(e.body, Queued)), None)

    def launches(self) -> list[Event]:
        """How often a queued run was launched: more than once if a launch was interrupted before a driver began."""
        return [event for event in self._submitter() if isinstance(event.body, Launched)]

    def launched_at(self) -> float:
        """When a driver was last to begin: at the submission, or when the run left its queue."""
        launches = self.launches()
        return launches[-1].time if launches else self.submitted().time

    def _submitter(self) -> Iterator[Event]:
        return events.read(self.events_folder / "submit.jsonl")

    def end(self) -> Event | None:
        """The final state, once there is one; a damaged one is not taken for none."""
        path = self.path.joinpath("events", f"{END}.jsonl")
        found = next(events.read(path), None)
        if found is None and path.exists():  # it was made meanwhile, always whole, or it is damaged
            found = next(events.read(path), None)
            if found is None:
                raise UnreadableRunError("its end is damaged", f"look at {path}")
        return found

    def record_end(self, body: Finished) -> bool:
        """Make a state final; False if another was first, which then stands."""
        self.events_folder.mkdir(exist_ok=True)
        try:
            return self._link_end(body)
        except OSError as error:
            if error.errno not in FULL:
                raise
        self._reserve.unlink(missing_ok=True)
        return self._link_end(body)

    def _link_end(self, body: Finished) -> bool:
        part = self.events_folder / f".{END}.{secrets.token_hex(8)}"
        try:
            part.write_bytes(events.to_line(body, time.time()))
            os.link(part, self.events_folder / f"{END}.jsonl")
        except FileExistsError:
            return False
        finally:
            part.unlink(missing_ok=True)
        self._reserve.unlink(missing_ok=True)
        return True

    def reserve(self) -> None:
        """Keep some of the disk for the record of the end: a job may fill it up."""
        self.events_folder.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            self._reserve.write_bytes(b"\0" * _RESERVE)

    @property
    def _reserve(self) -> Path:
        return self.events_folder / ".reserve"

    def request_stop(self, reason: str, user: str = "") -> None:
        self.writer(f"stop-{secrets.token_hex(4)}").append(StopRequested(reason, user))

    def stop_requests(self) -> list[StopRequested]:
        return [e.body for e in self.events("stop-") if isinstance(e.body, StopRequested)]

    def stop_reason(self) -> str:
        """Why a stop was requested; empty when it was not."""
        return next((r.reason or "stopped without a reason given" for r in self.stop_requests()), "")

    def reference(self) -> str:
        """The engine's own name for the run (a job number), by the submission or by the driver."""
        for event in self.events("submit", "driver-"):
            if isinstance(event.body, Accepted | AttemptStarted) and event.body.reference:
                return event.body.reference
        return ""

    def attempts(self) -> list[AttemptStarted]:
        return [e.body for e in self.events("driver-") if isinstance(e.body, AttemptStarted)]

    def failures(self, attempt: int) -> list[Event]:
        """What agents saw go wrong in an attempt, the earliest first."""
        return [
            event
            for event in self.events("node-")
            if isinstance(event.body, FailureSeen) and event.body.attempt == attempt
        ]

    def is_unsaved(self, index: int) -> bool:
        """Whether a node could not save its outputs: the only copy of them is there, and must stay."""
        return any(isinstance(event.body, OutputsUnsaved) for event in self.events(f"node-{index}-"))

    def notes(self) -> list[str]:
        """What the run and its nodes want their reader to know, in the order of its happening."""
        found = (event.body for event in self.events())
        texts = (
            body.text if isinstance(body, Note) else body.problem
            for body in found
            if isinstance(body, Note | OutputsUnsaved)
        )
        return list(dict.fromkeys(filter(None, texts)))

    def log(self, node: int, process: str) -> Path:
        return self.node(node) / f"{process}.log"

    def plan_json(self) -> dict[str, Any]:
        """The plan as it was written; one of another release is refused."""
        try:
            data = json.loads(read_regular(self.path / "plan.json", _LARGEST_PLAN))
        except FileNotFoundError as error:
            raise NotFoundError(
                f"run {self.id} has no plan yet", "it is made when nodes are known"
            ) from error
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            raise UnreadableRunError(f"run {self.id}: plan.json cannot be read: {error}") from error
        if not isinstance(data, dict):
            raise UnreadableRunError(f"run {self.id}: plan.json is not a plan")
        check_version(data)
        return data

    def write(self, name: str, text: str) -> None:
        """Write a file atomically."""
        write_atomic(self.path / name, text)

    def _check_release(self) -> None:
        if (self.path / "events.jsonl").exists():
            raise UnreadableRunError(
                "it was written by another release of Trainshed (events.jsonl, before format 1)",
                "read it with the release that made it, or remove it with `trainshed rm --force`",
            )


def finished(run: RunDirectory, outcome: Outcome, started: float | None, attempt: int) -> Finished:
    """The body of the final event: the outcome, and what lists show of an ended run."""
    first = run.submitted()
    body = run.submission()
    return Finished(
        outcome,
        name=body.name,
        engine=body.engine,
        shape=body.shape,
        user=body.user,
        emulated=body.emulated,
        attempt=attempt,
        submitted=round(first.time, 4),
        started=started,
        labels=dict(body.labels),
    )


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs below one home."""

    root: Path

    @classmethod
    def of(cls, home: Path) -> Runs:
        return cls(home / "runs")

    def create(self, name: str, count: int = 1) -> list[RunDirectory]:
        """Fresh folders, named so that people recognise them and no two are alike; several share a name."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for _ in range(100):
            base = f"{name}-{stamp}-{secrets.token_hex(2)}"
            first = self.root / (base if count == 1 else f"{base}.0")
            try:
                first.mkdir()
            except FileNotFoundError:
                self.root.mkdir(parents=True, exist_ok=True)
                continue
            except FileExistsError:
                continue
            rest = [self.root / f"{base}.{index}" for index in range(1, count)]
            for path in rest:
                path.mkdir()
            return [RunDirectory(path) for path in (first, *rest)]
        raise UsageError(
            f"{self.root}: no free name for a run of {name}", "remove old runs with `trainshed rm`"
        )

    def each(self) -> Iterator[RunDirectory]:
        """Every run, in no order."""
        try:
            entries = os.scandir(self.root)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if _RUN_ID.match(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield RunDirectory(self.root / entry.name)

    def all(self) -> list[RunDirectory]:
        """Every run, newest first."""
        stamps = {run.path: stamp for run in self.each() if (stamp := _submission_time(run)) is not None}
        return [RunDirectory(p) for p in sorted(stamps, key=lambda p: (stamps[p], p.name), reverse=True)]

    def labelled(self, labels: dict[str, str]) -> Iterator[RunDirectory]:
        """Runs that have all of these labels, newest first."""
        for run in self.all():
            with contextlib.suppress(UnreadableRunError):
                found = run.submission().labels
                if all(found.get(key) == value for key, value in labels.items()):
                    yield run

    def find(self, text: str) -> RunDirectory:
        """The run of that id, or the only one whose id begins with the text (`last`: the newest of all)."""
        if text == "last":
            for run in self.all():
                return run
            raise NotFoundError("there is no run yet", "`trainshed run job.yaml` makes one")
        if not _RUN_ID.match(text):
            raise UsageError(f"invalid run id: {text!r}", "`trainshed ps -a` lists the runs")
        exact = RunDirectory(self.root / text)
        if exact.is_recorded():
            return exact
        found = [run for run in self.all() if run.id.startswith(text)]
        if len(found) > 1:
            shown = ", ".join(run.id for run in found[:5]) + (", …" if len(found) > 5 else "")
            raise UsageError(f"{len(found)} runs begin with {text!r}: {shown}", "write more of the id")
        if not found:
            raise NotFoundError(f"no such run: {text!r}", "`trainshed ps -a` lists the runs")
        return found[0]

    def remove(self, run: RunDirectory) -> None:
        """Delete a run's folder; it disappears from listings first."""
        run.path.rename(self.root / f"{_REMOVED}{run.id}-{secrets.token_hex(4)}")
        # Also those of others who were killed while they removed.
        for path in self.root.glob(f"{_REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)


def _submission_time(run: RunDirectory) -> float | None:
    """When a run was submitted; by its folder if its events do not say it; None for what is not a run."""
    try:
        return run.submitted().time
    except UnreadableRunError:
        with contextlib.suppress(OSError):
            return run.path.stat().st_mtime if run.is_recorded() else None
    return None
