"""The state of a run, computed from its events and the signs of life of its processes.

Nothing here writes. A run whose processes are all gone without a recorded end
is `lost`, whoever asks and whenever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Event, Kind
from trainshed.runs.locks import is_held
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause, RunState


@dataclass(frozen=True, slots=True)
class Summary:
    """What can be said of a run now."""

    id: str
    state: RunState
    name: str = ""
    engine: str = ""
    shape: str = ""
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    attempt: int = 1
    emulated: bool = False
    """Whether the CPU stood in for the devices: times and accuracy then say nothing about them."""
    outcome: Outcome | None = None
    reason: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return self.outcome.exit_code if self.outcome else self.state.exit_code

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": self.id,
            "state": self.state.value,
            "name": self.name,
            "engine": self.engine,
            "shape": self.shape,
            "submitted": self.submitted,
            "started": self.started,
            "ended": self.ended,
            "attempt": self.attempt,
            "emulated": self.emulated,
            "reason": self.reason,
            "exit_code": self.exit_code if self.state.is_final else None,
        }
        if self.outcome and self.outcome.failure:
            data["failure"] = self.outcome.failure.to_json()
        return data


def summarise(run: RunDirectory, alive: bool | None = None) -> Summary:
    """The run's state now; `alive` is the engine's word where locks do not reach (other machines)."""
    events = list(run.events())
    values: dict[str, Any] = {"id": run.id}
    state, outcome, reason = RunState.PENDING, None, ""
    for event in events:
        match event.kind:
            case Kind.SUBMITTED:
                values |= {k: event.data.get(k, "") for k in ("name", "engine", "shape")}
                values["emulated"] = bool(event.data.get("emulated"))
                values["submitted"] = event.time
            case Kind.PENDING:
                state, outcome, reason = RunState.PENDING, None, event.data.get("reason", "")
            case Kind.ATTEMPT:
                state, outcome, reason = RunState.PREPARING, None, ""
                values["attempt"] = event.data.get("attempt", 1)
            case Kind.RUNNING:
                state = RunState.RUNNING
                values.setdefault("started", event.time)
            case Kind.STOP_REQUESTED | Kind.STOPPING:
                state, reason = RunState.STOPPING, event.data.get("reason", reason)
            case Kind.ATTEMPT_FINISHED if outcome is None:
                outcome, values["ended"] = _outcome(event), event.time
            case Kind.FINISHED:
                outcome, values["ended"] = _outcome(event), event.time
                state = outcome.state
                break
    if not state.is_final and not (is_alive(run) if alive is None else alive):
        # Events are read before the signs of life, so the end may have been recorded in between.
        if len(list(run.events())) > len(events):
            return summarise(run, alive)
        outcome = outcome or _lost(run, state, _latest(events))
        state = outcome.state
        values.setdefault("ended", events[-1].time if events else None)
    elif not state.is_final:
        outcome = None
        values.pop("ended", None)
    if outcome and outcome.failure:
        reason = outcome.failure.reason
    return Summary(state=state, outcome=outcome, reason=reason, **values)


def is_alive(run: RunDirectory) -> bool:
    """Whether a driver or an agent of the run still lives on this machine."""
    return is_held(run.alive_path) or any(is_held(run.node(i) / "alive.lock") for i in run.node_indexes())


def phases(run: RunDirectory) -> dict[int, dict[str, float]]:
    """The seconds each node spent in each phase of the latest attempt."""
    since = _latest(run.events())
    return {
        index: {
            e.data["phase"]: e.data["seconds"]
            for e in run.node_events(index)
            if e.kind is Kind.PHASE and e.time >= since
        }
        for index in run.node_indexes()
    }


def _outcome(event: Event) -> Outcome:
    return Outcome.from_json(event.data)


def _latest(events: Iterable[Event]) -> float:
    """When the latest attempt began. All counts for a first one, also what nodes with a slow clock wrote."""
    began = [event.time for event in events if event.kind is Kind.ATTEMPT]
    return began[-1] if len(began) > 1 else 0.0


def _lost(run: RunDirectory, last: RunState, since: float) -> Outcome:
    """Without a word of driver or coordinator: the earliest failure that an agent recorded."""
    every = (event for index in run.node_indexes() for event in run.node_events(index))
    told = [event for event in every if event.kind is Kind.FAILURE and event.time >= since]
    if told:
        return Outcome.of(Failure.from_json(min(told, key=lambda event: event.time).data))
    reason = f"{RunState.LOST.meaning} (last seen {last.value})"
    return Outcome(RunState.LOST, RunState.LOST.exit_code, Failure(Cause.DRIVER, reason))
