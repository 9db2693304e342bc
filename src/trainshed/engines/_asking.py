"""Which engine a run was given to, and the run's state in the light of that engine's word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainshed import axes
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.summary import Summary, summarise

if TYPE_CHECKING:
    from trainshed.engines.base import Engine


def engine_of(run: RunDirectory) -> Engine:
    """The engine that runs it, as its first event names it."""
    for event in run.events():
        if event.kind is Kind.SUBMITTED:
            return axes.load("engine", event.data["engine"])  # type: ignore[no-any-return]
    raise TrainshedError(f"run {run.id} does not say which engine runs it", f"look at {run.events_path}")


def state_of(run: RunDirectory) -> Summary:
    """The run's state: from its events, its locks, and its engine where locks do not reach.

    An ended run is never asked about, so that listing runs loads no engine for them.
    """
    kinds = {event.kind for event in run.events()}
    if Kind.FINISHED in kinds or Kind.SUBMITTED not in kinds:
        return summarise(run)
    status = engine_of(run).status(run)
    summary = summarise(run, status.alive)
    return (
        replace(summary, reason=status.waiting) if status.waiting and not summary.state.is_final else summary
    )
