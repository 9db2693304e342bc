"""The state of a run, computed from its events and the signs of life of its processes.

Nothing here writes. What the events alone cannot show (a run whose processes
are gone, a run on another machine) is concluded by the reconciler, which
records it; until then the last state seen is given, with the doubt as its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trainshed.errors import TrainshedError
from trainshed.files import is_held
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Finished,
    Pending,
    PhaseFinished,
    Queued,
    RanksStarted,
    Stopping,
    StopRequested,
    Submitted,
    UnreadableRunError,
)
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause, RunState

MOST_LAUNCHES = 5
"""A queued run that was launched so often without a driver that began is not launched again."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What an engine knows of a run now."""

    alive: bool = True
    """Whether the run may still end on its own: processes live, or it waits for nodes."""
    waiting: str = ""
    """Why it waits for nodes, with an estimate where there is one."""
    problem: str = ""
    """Why the engine does not know: unreachable is not the same as gone."""
    failure: Failure | None = None
    """Of a run that is not alive: what ended it, if the engine knows better than its record."""
    queued: bool = False
    """Of a run that is not alive: whether it waited in a server's queue when it was asked about."""
    requeued: bool = False
    """Whether the engine took the nodes of the latest attempt away and will start another."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a run now."""

    id: str
    state: RunState
    name: str = ""
    engine: str = ""
    shape: str = ""
    user: str = ""
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    attempt: int = 1
    emulated: bool = False
    """Whether the CPU stood in for the devices: times and accuracy then say nothing about them."""
    outcome: Outcome | None = None
    reason: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return self.outcome.exit_code if self.outcome else self.state.exit_code

    @property
    def failure(self) -> Failure | None:
        return self.outcome.failure if self.outcome else None

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": self.id,
            "state": self.state.value,
            "name": self.name,
            "engine": self.engine,
            "shape": self.shape,
            "user": self.user,
            "submitted": self.submitted,
            "started": self.started,
            "ended": self.ended,
            "attempt": self.attempt,
            "emulated": self.emulated,
            "reason": self.reason,
            "labels": self.labels,
            "exit_code": self.exit_code if self.state.is_final else None,
        }
        if self.failure:
            data["failure"] = self.failure.to_json()
        return data


def summarise(run: RunDirectory, status: EngineStatus | None = None) -> Summary:
    """The run's state; `status` is its engine's, where one was asked. UnreadableRunError says why not."""
    if end := run.end():
        return _ended(run, end)
    events = run.events()
    first = next((e for e in events if e.writer == "submit" and isinstance(e.body, Submitted)), None)
    if first is None:
        first = run.submitted()
    body = first.body
    assert isinstance(body, Submitted)
    attempt = max((e.body.attempt for e in events if isinstance(e.body, AttemptStarted)), default=0)
    state, reason = _state(events, attempt)
    if status and not state.is_final:
        if status.problem:
            reason = f"its state is not known now: {status.problem}"
        elif status.waiting:
            reason = status.waiting
    # The end may have been recorded while the events were read.
    if end := run.end():
        return _ended(run, end)
    return Summary(
        id=run.id,
        state=state,
        name=body.name,
        engine=body.engine,
        shape=body.shape,
        user=body.user,
        submitted=first.time,
        started=started_at(events),
        attempt=max(1, attempt),
        emulated=body.emulated,
        reason=reason,
        labels=dict(body.labels),
    )


def summaries(runs: Runs) -> Iterator[Summary]:
    """Every run, in no order; one that cannot be read says why and hides no other."""
    for run in runs.each():
        if summary := _listed(run):
            yield summary


def unreadable(run: RunDirectory, error: Exception) -> Summary:
    """What is known of a run whose record cannot be read."""
    reason = error.message if isinstance(error, TrainshedError) else str(error)
    return Summary(run.id, RunState.UNREADABLE, submitted=run.path.stat().st_mtime, reason=reason)


def is_alive(run: RunDirectory) -> bool:
    """Whether a driver or an agent of the run still lives on this machine."""
    return is_held(run.alive_path) or any(is_held(run.node(i) / "alive.lock") for i in run.node_indexes())


def is_queued(run: RunDirectory) -> bool:
    """Whether a run waits in a server's queue, as far as its record tells: no driver of it ever began.

    A driver that lives but has not begun yet is seen by `is_alive` only: whoever acts on this holds the run's
    `alive.lock`, or was told by the engine that nothing of the run lives.
    """
    if run.queued() is None or len(run.launches()) >= MOST_LAUNCHES or run.end():
        return False
    return not run.attempts() and not run.reference()


def conclude(run: RunDirectory, status: EngineStatus) -> Outcome:
    """How a run ended whose processes are gone and recorded no end."""
    events = run.events()
    attempt = max((e.body.attempt for e in events if isinstance(e.body, AttemptStarted)), default=0)
    outcome = attempt_outcome(events, attempt)
    requested = run.stop_reason()
    if outcome is None and (failures := run.failures(attempt)):
        outcome = Outcome.of(failures[0].body.failure)  # type: ignore[union-attr]
    # Agents that their engine signals say that they were stopped; why, only the engine knows.
    unexplained = outcome is None or (outcome.state is RunState.STOPPED and not requested)
    if unexplained and status.failure:
        return Outcome.of(status.failure)
    if outcome is None and requested:
        return Outcome.of(Failure(Cause.STOP, requested))
    if outcome is None:
        last, _ = _state(events, attempt)
        reason = f"{RunState.LOST.meaning} (last seen {last.value})"
        return Outcome(RunState.LOST, RunState.LOST.exit_code, Failure(Cause.DRIVER, reason))
    return outcome


def attempt_outcome(events: Iterable[Event], attempt: int) -> Outcome | None:
    """The coordinator's account of an attempt."""
    for event in events:
        if isinstance(event.body, AttemptFinished) and event.body.attempt == attempt:
            return event.body.outcome
    return None


def started_at(events: Iterable[Event]) -> float | None:
    """When ranks first ran."""
    return min((e.time for e in events if isinstance(e.body, RanksStarted)), default=None)


def phases(run: RunDirectory) -> dict[int, dict[str, float]]:
    """The seconds each node spent in each phase of the latest attempt."""
    attempt = max((item.attempt for item in run.attempts()), default=1)
    result: dict[int, dict[str, float]] = {}
    for index in run.node_indexes():
        bodies = (event.body for event in run.events(f"node-{index}-{attempt}."))
        result[index] = {body.phase: body.seconds for body in bodies if isinstance(body, PhaseFinished)}
    return result


def _state(events: list[Event], attempt: int) -> tuple[RunState, str]:
    """The state by what was recorded of the latest attempt; clocks of several machines do not matter."""
    state, reason = RunState.PENDING if attempt == 0 else RunState.PREPARING, ""
    bodies = [event.body for event in events]
    if any(isinstance(b, RanksStarted) and b.attempt == attempt for b in bodies):
        state = RunState.RUNNING
    for body in bodies:
        if isinstance(body, Stopping) and body.attempt == attempt:
            state, reason = RunState.STOPPING, body.reason
    waits = [b.reason for b in bodies if isinstance(b, Queued) and attempt == 0]
    waits += [b.reason for b in bodies if isinstance(b, Pending) and b.attempt == attempt]
    if waits:
        state, reason = RunState.PENDING, waits[-1]
    requests = [b.reason for b in bodies if isinstance(b, StopRequested)]
    if requests:
        state, reason = RunState.STOPPING, requests[0]
    return state, reason


def _ended(run: RunDirectory, end: Event) -> Summary:
    body = end.body
    if not isinstance(body, Finished):
        raise UnreadableRunError("its end is not as this release knows it", f"look at {run.events_folder}")
    failure = body.outcome.failure
    return Summary(
        id=run.id,
        state=body.outcome.state,
        name=body.name,
        engine=body.engine,
        shape=body.shape,
        user=body.user,
        submitted=body.submitted,
        started=body.started,
        ended=end.time,
        attempt=body.attempt,
        emulated=body.emulated,
        outcome=body.outcome,
        reason=failure.reason if failure else "",
        labels=dict(body.labels),
    )


def _listed(run: RunDirectory) -> Summary | None:
    try:
        return summarise(run)
    except (TrainshedError, OSError) as error:
        try:
            return unreadable(run, error) if run.is_recorded() else None
        except OSError:
            return None  # removed meanwhile
