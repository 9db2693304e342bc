"""Rules about what happened: events of all writers, and the spans of the meters within them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from trainshed.bench.judge.cross import OTHER_MACHINE, SAME_MACHINE, START_DELAY, Case, rule
from trainshed.bench.measure.evidence import PlannedProcess, node_of
from trainshed.runs.events import (
    END,
    AttemptFinished,
    AttemptStarted,
    Event,
    FailureSeen,
    Finished,
    Pending,
    PhaseFinished,
    ProcessExited,
    ProcessStarted,
    RanksStarted,
    Stopping,
    StopRequested,
    Submitted,
)

_RUN_PHASE = "run"


@rule("exit-code")
def exit_codes(case: Case) -> Iterator[str]:
    """Every planned process exited with 0, and so did the attempt and the run."""
    planned = {(p.node, p.name) for p in _processes(case)}
    for event, body in case.evidence.bodies(ProcessExited):
        if body.returncode != 0 and (not planned or (node_of(event), body.process) in planned):
            yield f"{body.process} exited with {body.returncode}"
    outcomes = [body.outcome for _, body in case.evidence.bodies(AttemptFinished)]
    for outcome in (*outcomes, *(body.outcome for _, body in case.evidence.bodies(Finished))):
        if outcome.state.value == "succeeded" and outcome.exit_code != 0:
            yield f"the run succeeded with exit code {outcome.exit_code}"


@rule("failure-seen")
def failures(case: Case) -> Iterator[str]:
    """No agent saw a failure, and nobody asked for the end of the run."""
    for _, body in case.evidence.bodies(FailureSeen):
        yield f"an agent saw a failure: {body.failure.reason:.200}"
    reasons = [body.reason for _, body in case.evidence.bodies(StopRequested)]
    for reason in (*reasons, *(body.reason for _, body in case.evidence.bodies(Stopping))):
        yield f"the run was to be stopped: {reason:.200}"
    for _, ended in case.evidence.bodies(Finished):
        if ended.outcome.state.value == "succeeded" and ended.outcome.failure is not None:
            yield "the run succeeded with a failure"


@rule("attempt-repeated")
def attempts(case: Case) -> Iterator[str]:
    """The run had one attempt."""
    numbers = {
        body.attempt
        for event in case.evidence.events
        if not isinstance(body := event.body, Pending) and hasattr(body, "attempt")
    }
    if numbers - {1}:
        yield f"the run had attempts {', '.join(map(str, sorted(numbers)[:5]))}; a benchmark run has one"
    for kind in (AttemptStarted, RanksStarted, AttemptFinished):
        if len(case.evidence.bodies(kind)) > 1:
            yield f"{len(case.evidence.bodies(kind))} events {kind.__name__}, a benchmark run has one"


@rule("finished-twice")
def finished_once(case: Case) -> Iterator[str]:
    """The final state was written once, by the writer `end`, and agrees with the attempt's."""
    ends = case.evidence.bodies(Finished)
    if len(ends) > 1 or len(case.evidence.writers.get(END, [])) > 1:
        yield f"the run finished {max(len(ends), len(case.evidence.writers.get(END, [])))} times"
    for event, body in ends:
        if event.writer != END:
            yield f"{event.writer} wrote a final state, only {END} may"
        for _, attempt in case.evidence.bodies(AttemptFinished):
            if attempt.outcome.state is not body.outcome.state:
                yield f"the attempt ended as {attempt.outcome.state.value}, the run as {body.outcome.state.value}"


@rule("writer-unknown")
def writers(case: Case) -> Iterator[str]:
    """Each event was written by a writer that may write it."""
    allowed: dict[type, tuple[str, ...]] = {
        Submitted: ("submit",),
        RanksStarted: ("coordinator-",),
        AttemptFinished: ("coordinator-",),
        ProcessStarted: ("node-",),
        ProcessExited: ("node-",),
        PhaseFinished: ("node-",),
    }
    for event in case.evidence.events:
        names = allowed.get(type(event.body))
        if names and not event.writer.startswith(names):
            yield f"{event.writer} wrote an event {event.kind.value}"


@rule("event-order")
def event_order(case: Case) -> Iterator[str]:
    """Events follow one another: in each file, and from submission over attempt, ranks and their exits to the end."""
    for writer, found in case.evidence.writers.items():
        for before, after in pairwise(found):
            if after.time < before.time - SAME_MACHINE:
                yield f"{writer}: {after.kind.value} was written {before.time - after.time:.1f} s before {before.kind.value}"
    kinds = (Submitted, AttemptStarted, RanksStarted, AttemptFinished, Finished)
    chain = [event for kind in kinds for event, _ in case.evidence.bodies(kind)[:1]]
    for before, after in pairwise(chain):
        if after.time < before.time - OTHER_MACHINE:
            yield f"{after.kind.value} is {before.time - after.time:.1f} s earlier than {before.kind.value}"
    for finished, _ in case.evidence.bodies(AttemptFinished)[:1]:
        planned = {(p.node, p.name) for p in _processes(case)}
        for event, gone in case.evidence.bodies(ProcessExited):
            if event.time > finished.time + OTHER_MACHINE and (node_of(event), gone.process) in planned:
                yield f"{gone.process} exited {event.time - finished.time:.1f} s after the attempt had finished"
    if chain:
        for event in case.evidence.events:
            if not chain[0].time - OTHER_MACHINE <= event.time <= chain[-1].time + OTHER_MACHINE:
                yield f"{event.writer}: {event.kind.value} is outside the run"


@rule("summary-differs")
def summary_of_end(case: Case) -> Iterator[str]:
    """What the final event repeats (name, engine, shape, times, labels) is what the others say."""
    submitted = case.evidence.bodies(Submitted)
    for _, end in case.evidence.bodies(Finished):
        if submitted:
            event, body = submitted[0]
            for name in ("name", "engine", "shape", "user", "emulated", "labels"):
                said, first = getattr(end, name), getattr(body, name)
                if said != first and (said or first):
                    yield f"the end says {name} {str(said)[:60]!r}, the submission {str(first)[:60]!r}"
            if end.submitted is not None and abs(end.submitted - event.time) > SAME_MACHINE:
                yield f"the end says the run was submitted {end.submitted - event.time:+.1f} s from when it was"
        for started, _ in case.evidence.bodies(RanksStarted)[:1]:
            if end.started is not None and abs(end.started - started.time) > OTHER_MACHINE:
                yield f"the end says the ranks started {end.started - started.time:+.1f} s from when they did"


@rule("process-unrecorded")
def processes_recorded(case: Case) -> Iterator[str]:
    """Each planned process started once and exited once, and no other rank did."""
    planned = {(p.node, p.name): p for p in _processes(case)}
    if not planned or not any(event.writer.startswith("node-") for event in case.evidence.events):
        return
    begun = Counter((node_of(event), body.process) for event, body in case.evidence.bodies(ProcessStarted))
    gone = Counter((node_of(event), body.process) for event, body in case.evidence.bodies(ProcessExited))
    for seen, verb in ((begun, "started"), (gone, "exited")):
        for key in planned:
            if (times := seen.get(key, 0)) != 1:
                yield f"{key[1]} of node {key[0]} {verb} {times} times, planned is once"
        for node, name in seen:
            if (node, name) not in planned and name.startswith("rank-"):
                yield f"{name} of node {node} {verb} and is not in the plan"


@rule("span-outside-process")
def spans_in_processes(case: Case) -> Iterator[str]:
    """A rank's meter began after its process started and ended before it exited, by the node's clock."""
    spans = _process_spans(case)
    for rank, session in case.sessions:
        span = spans.get(rank.rank) or spans.get((rank.node, "node"))
        if span is None:
            continue
        started, exited = span
        if started is not None and min(session.wall) < started - START_DELAY:
            yield f"rank {rank.rank} measured {started - min(session.wall):.1f} s before its process started"
        if exited is not None and max(session.wall) > exited + SAME_MACHINE:
            yield f"rank {rank.rank} measured until {max(session.wall) - exited:.1f} s after its process exited"


@rule("span-outside-run")
def spans_in_run(case: Case) -> Iterator[str]:
    """Meters lie between the start of the ranks and the end of the run."""
    running = [event.time for event, _ in case.evidence.bodies(RanksStarted)]
    ended = [event.time for event, _ in case.evidence.bodies(Finished)]
    for rank, session in case.sessions:
        if running and min(session.wall) < min(running) - OTHER_MACHINE:
            yield f"rank {rank.rank} measured {min(running) - min(session.wall):.1f} s before the ranks ran"
        if ended and max(session.wall) > max(ended) + OTHER_MACHINE:
            yield f"rank {rank.rank} measured until {max(session.wall) - max(ended):.1f} s after the run ended"


@rule("longer-than-run")
def shorter_than_phase(case: Case) -> Iterator[str]:
    """No meter ran longer than its node's agent counted for running the ranks."""
    counted = {
        node_of(event): body.seconds
        for event, body in case.evidence.bodies(PhaseFinished)
        if body.phase == _RUN_PHASE
    }
    for rank, session in case.sessions:
        spent, allowed = session.mono[-1] - session.mono[0], counted.get(rank.node)
        if allowed is not None and spent > allowed + SAME_MACHINE:
            yield f"rank {rank.rank} measured {spent:.1f} s, its node's ranks ran for {allowed:.1f} s"


@rule("phase-impossible")
def phases_in_run(case: Case) -> Iterator[str]:
    """A node's phases take no negative time, do not overlap, and the ranks' phase is as long as its processes."""
    by_writer: dict[str, list[tuple[Event, PhaseFinished]]] = {}
    for event, body in case.evidence.bodies(PhaseFinished):
        by_writer.setdefault(event.writer, []).append((event, body))
        if body.seconds < 0:
            yield f"{event.writer}: phase {body.phase:.40} took {body.seconds:.1f} s"
    spans = _process_spans(case)
    for writer, found in by_writer.items():
        for (before, _), (after, body) in pairwise(found):
            if after.time - body.seconds < before.time - SAME_MACHINE:
                yield f"{writer}: phase {body.phase:.40} began before the previous phase ended"
        for event, body in found:
            span = spans.get((node_of(event), "node")) if body.phase == _RUN_PHASE else None
            if span is None or span[0] is None or span[1] is None:
                continue
            if abs((span[1] - span[0]) - body.seconds) > START_DELAY + 0.05 * body.seconds:
                yield f"{writer}: the ranks ran for {body.seconds:.1f} s, their processes for {span[1] - span[0]:.1f} s"


def _processes(case: Case) -> tuple[PlannedProcess, ...]:
    return case.evidence.plan.processes if case.evidence.plan else ()


Bounds = tuple[float | None, float | None]


def _process_spans(case: Case) -> dict[object, Bounds]:
    """When the process of a rank started and exited; under (node, "node") the same of all of a node's."""
    times: dict[tuple[int | None, str], list[float | None]] = {}
    for event, begun in case.evidence.bodies(ProcessStarted):
        times.setdefault((node_of(event), begun.process), [None, None])[0] = event.time
    for event, gone in case.evidence.bodies(ProcessExited):
        times.setdefault((node_of(event), gone.process), [None, None])[1] = event.time
    found: dict[object, Bounds] = {}
    for process in _processes(case):
        low, high = times.get((process.node, process.name), [None, None])
        if process.rank is not None:
            found[process.rank] = (low, high)
        node_low, node_high = found.get((process.node, "node"), (None, None))
        lows, highs = (
            [t for t in (low, node_low) if t is not None],
            [t for t in (high, node_high) if t is not None],
        )
        found[(process.node, "node")] = (min(lows, default=None), max(highs, default=None))
    return found
