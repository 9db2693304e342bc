"""What several commands share: finding a run's engine and asking both for its state."""

from __future__ import annotations

from trainshed import axes
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.summary import Summary, summarise


def engine_of(run: RunDirectory) -> object:
    """The engine that runs it, as its first event names it."""
    for event in run.events():
        if event.kind is Kind.SUBMITTED:
            return axes.load("engine", event.data["engine"])
    return axes.load("engine", "local")


def state_of(run: RunDirectory) -> Summary:
    """The run's state: from its events, its locks, and its engine where locks do not reach."""
    events = [event for event in run.events() if event.kind in (Kind.SUBMITTED, Kind.FINISHED)]
    if not events or events[-1].kind is Kind.FINISHED or events[0].data.get("engine") == "local":
        return summarise(run)
    from dataclasses import replace

    status = axes.load("engine", events[0].data["engine"]).status(run)
    summary = summarise(run, status.alive)
    return (
        replace(summary, reason=status.waiting) if status.waiting and not summary.state.is_final else summary
    )
