"""What drivers of all engines do alike: what a node must see, how an attempt ended, recording the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.runs.directory import RunDirectory, home
from trainshed.runs.events import Kind
from trainshed.runs.outcome import Failure, Outcome

if TYPE_CHECKING:
    from trainshed.spec.job import JobSpec

LIBRARY = Path(__file__).resolve().parents[1] / "contracts" / "site"
"""Modules given to scripts."""


def python_of(job: JobSpec) -> str:
    """The interpreter that starts an entry."""
    if job.image:
        return "python3"
    if job.environment is None:
        return sys.executable
    from trainshed.environments import resolve

    return str(resolve(job.environment).python)


def visible(job: JobSpec) -> list[str]:
    """What a node must see to work at all: Trainshed, the interpreters, the job's own local sources."""
    paths = [str(LIBRARY.parents[2]), sys.prefix, sys.base_prefix, sys.exec_prefix]
    paths += [str(Path(path).resolve()) for path in sys.path if path and Path(path).is_dir()]
    python = Path(python_of(job))
    if python.is_absolute():
        paths += [str(python.parents[1]), str(python.resolve().parents[1])]
    for source in (job.code, *(channel.source for channel in job.inputs)):
        if source and "://" not in source:
            paths.append(source)
    return list(dict.fromkeys(paths))


def cache_folder() -> Path:
    """Where inputs are kept between runs, for all nodes of this machine."""
    folder = home() / "cache" / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def writable(job: JobSpec, run: RunDirectory, cache: Path) -> list[str]:
    """What a node writes outside its private folders: the run directory and the outputs' own."""
    targets = [c.target for c in job.outputs if c.target and "://" not in c.target]
    if job.log_url and "://" not in job.log_url:
        targets.append(job.log_url)
    for target in targets:
        Path(target).mkdir(parents=True, exist_ok=True)
    return [str(run.path), str(cache), *targets]


def stop_reason(run: RunDirectory) -> str:
    """Why somebody asked for the run's end; empty when nobody did."""
    asked = (event.data.get("reason") for event in run.events() if event.kind is Kind.STOP_REQUESTED)
    return next((reason or "stopped without a reason given" for reason in asked), "")


def coordinators_word(run: RunDirectory, began: int) -> Outcome | None:
    """How the attempt ended that started after the run's first `began` events, if node 0 recorded it."""
    for event in list(run.events())[began:]:
        if event.kind is Kind.ATTEMPT_FINISHED:
            return Outcome.from_json(event.data)
    return None


def first_failure(run: RunDirectory, nodes: Iterable[int], since: float = 0.0) -> Failure | None:
    """The earliest failure that an agent recorded by itself."""
    found = [e for i in nodes for e in run.node_events(i) if e.kind is Kind.FAILURE and e.time >= since]
    return Failure.from_json(min(found, key=lambda e: e.time).data) if found else None


def record_end(run: RunDirectory, outcome: Outcome) -> None:
    """The result, then the event that makes it final."""
    emulated = any(e.data.get("emulated") for e in run.events() if e.kind is Kind.SUBMITTED)
    result = {"run": run.id, **({"emulated": True} if emulated else {}), **outcome.to_json()}
    run.write("result.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    run.append(Kind.FINISHED, **outcome.to_json())
