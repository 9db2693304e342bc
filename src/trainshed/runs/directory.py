"""The run directory: the truth about a run. Everything that shows a run reads this.

job.yaml  plan.json  events.jsonl  result.json  alive.lock
node-<i>/events.jsonl  rank-<r>.log  metrics.jsonl  agent.log  alive.lock
outputs/<name>/        outputs without a target of their own
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainshed.errors import NotFoundError, UsageError
from trainshed.runs import events
from trainshed.runs.events import Event, Kind

_RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_GRAVE = ".removed-"


def home() -> Path:
    """Trainshed's own folder: $TRAINSHED_HOME, or ~/.trainshed."""
    named = os.environ.get("TRAINSHED_HOME") or str(Path.home() / ".trainshed")
    return _resolved(named) if named.startswith("/") else Path(named).resolve()


@lru_cache(maxsize=8)
def _resolved(path: str) -> Path:
    """Once for each home: it is asked for many times in one command."""
    return Path(path).resolve()


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One run's folder."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def events_path(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def alive_path(self) -> Path:
        return self.path / "alive.lock"

    def node(self, index: int) -> Path:
        return self.path / f"node-{index}"

    def node_indexes(self) -> list[int]:
        found = (p.name.removeprefix("node-") for p in self.path.glob("node-*"))
        return sorted(int(name) for name in found if name.isdigit())

    def append(self, kind: Kind, /, **data: Any) -> Event:
        return events.append(self.events_path, kind, **data)

    def events(self) -> Iterator[Event]:
        return events.read(self.events_path)

    def node_events_path(self, index: int) -> Path:
        return self.node(index) / "events.jsonl"

    def node_events(self, index: int) -> Iterator[Event]:
        return events.read(self.node_events_path(index))

    def array(self) -> list[str]:
        """The ids of all runs that were submitted together with this one; none if it was alone."""
        first = next(self.events(), None)
        return list(first.data.get("array", ())) if first else []

    def is_unsaved(self, index: int) -> bool:
        """Whether a node could not save its outputs: the only copy of them is there, and must stay."""
        return any(event.kind is Kind.UNSAVED for event in self.node_events(index))

    def notes(self) -> list[str]:
        """What the run and its nodes want their reader to know, in the order of its happening."""
        every = [*self.events(), *(e for i in self.node_indexes() for e in self.node_events(i))]
        told = sorted((e for e in every if e.kind in (Kind.UNSAVED, Kind.NOTE)), key=lambda e: e.time)
        return [text for e in told if (text := e.data.get("problem") or e.data.get("text"))]

    def log(self, node: int, process: str) -> Path:
        return self.node(node) / f"{process}.log"

    def plan_json(self) -> dict[str, Any]:
        try:
            data = json.loads((self.path / "plan.json").read_bytes())
        except (FileNotFoundError, ValueError):
            raise NotFoundError(f"run {self.id} has no readable plan", "it was not planned yet") from None
        assert isinstance(data, dict)
        return data

    def write(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        target = self.path / name
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        part.write_text(text, encoding="utf-8")
        part.replace(target)


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs below one home."""

    root: Path

    @classmethod
    def default(cls) -> Runs:
        return cls(home() / "runs")

    def create(self, name: str) -> RunDirectory:
        """A fresh folder, named so that people recognise it and no two are alike."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for _ in range(100):
            path = self.root / f"{name}-{stamp}-{secrets.token_hex(2)}"
            try:
                path.mkdir()
            except FileNotFoundError:
                self.root.mkdir(parents=True, exist_ok=True)
                continue
            except FileExistsError:
                continue
            return RunDirectory(path)
        raise UsageError(
            f"{self.root}: no free name for a run of {name}", "remove old runs with `trainshed rm`"
        )

    def all(self) -> list[RunDirectory]:
        """Every run, newest first."""
        if not self.root.is_dir():
            return []
        found = (path for path in self.root.iterdir() if _RUN_ID.match(path.name))
        stamps = {path: stamp for path in found if (stamp := _submitted(path)) is not None}
        return [RunDirectory(p) for p in sorted(stamps, key=lambda p: (stamps[p], p.name), reverse=True)]

    def find(self, text: str) -> RunDirectory:
        """The run of that id, or the newest whose id begins with the text (`last`: the newest of all)."""
        if text != "last" and not _RUN_ID.match(text):
            raise UsageError(f"run {text!r} is no run id", "`trainshed ps -a` lists the runs")
        exact = self.root / text
        if text != "last" and (exact / "events.jsonl").exists():
            return RunDirectory(exact)
        for run in self.all():
            if text == "last" or run.id.startswith(text):
                return run
        raise NotFoundError(f"no run is called {text!r}", "`trainshed ps -a` lists the runs")

    def remove(self, run: RunDirectory) -> None:
        """Delete a run's folder; it disappears from listings first."""
        run.path.rename(self.root / f"{_GRAVE}{run.id}")
        # Also those of others who were killed while they removed.
        for grave in self.root.glob(f"{_GRAVE}*"):
            shutil.rmtree(grave, ignore_errors=True)


def _submitted(path: Path) -> float | None:
    """When a run began; None for what is no run, or is removed meanwhile."""
    record = path / "events.jsonl"
    try:
        age = record.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None
    first = next(events.read(record), None)
    return first.time if first else age
