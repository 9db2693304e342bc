"""Rules across the runs of a result: one after another, of one job, on known machines, and each its own.

Of each run only small facts are kept, so that a result of many large runs needs the memory of one.
"""

from __future__ import annotations

import calendar
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, pairwise
from typing import Any

from trainshed.bench.judge.cross import MOST_MESSAGES, OTHER_MACHINE
from trainshed.bench.judge.cross.agreement import BATCH, LOCAL, parameters
from trainshed.bench.judge.cross.alike import Turns, turns_of
from trainshed.bench.judge.cross.chain import ChainFacts, chain_facts
from trainshed.bench.judge.cross.machines import is_copied
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.evidence import RunEvidence, is_emulated
from trainshed.bench.result import ATTESTED, NOT_ATTESTED, Reason
from trainshed.runs.events import Finished, Submitted

CLOCK_SLACK, CLOCK_DRIFT = 1.0, 0.001
MOST_RANKS_COMPARED = 16
MOST_SAMPLES = 2000


@dataclass(frozen=True)
class Promise:
    """What a result says of all its runs."""

    id: str
    created: str
    label: str
    rules: Rules


@dataclass(frozen=True)
class RunFacts:
    """What is remembered of a run to hold it against the others."""

    index: int
    submitted: float | None
    finished: float | None
    engine: str
    labels: dict[str, str]
    job: dict[str, Any] | None
    batch: str
    hosts: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each host: both clocks' difference, and the wall time at the first mark."""
    turns: dict[int, Turns] = field(default_factory=dict)
    emulated: bool = False
    identities: tuple[str, ...] = ()
    """Hashes of what happened and of what was metered, however it is written down."""
    chain: ChainFacts | None = None
    samples: dict[tuple[int, str], tuple[float, ...]] = field(default_factory=dict)
    """Of each node, the first readings of what its processes and its machine used."""


def facts_of(evidence: RunEvidence, index: int) -> RunFacts:
    submitted, ended = evidence.bodies(Submitted), evidence.bodies(Finished)
    sessions = [(r.rank, r.session) for r in evidence.metered.values() if r.session is not None]
    settings = [m for _, s in sessions[:1] for m in s.all("setting") if m.fields.get("key") == BATCH]
    job = evidence.job
    return RunFacts(
        index=index,
        submitted=submitted[0][0].time if submitted else None,
        finished=ended[-1][0].time if ended else None,
        engine=submitted[0][1].engine if submitted else "",
        labels=dict(submitted[0][1].labels) if submitted else {},
        job=None if job is None else {**_scalars(job), "parameters": parameters(job)},
        batch=str(settings[0].fields.get("value"))[:40] if settings else "",
        hosts={s.host: (s.clock_offset, s.wall[0]) for _, s in sessions[:MOST_RANKS_COMPARED]},
        turns={rank: turns_of(s) for rank, s in sessions[:MOST_RANKS_COMPARED]},
        emulated=is_emulated(evidence),
        identities=tuple(_identities(evidence)),
        chain=chain_facts(evidence),
        samples={
            (node, name): tuple(v for s in found[:MOST_SAMPLES] if (v := getattr(s, name)) is not None)
            for node, found in list(evidence.metrics.items())[:MOST_RANKS_COMPARED]
            for name in ("node_cpu_percent", "memory_bytes")
        },
    )


def attestation(facts: Sequence[RunFacts]) -> str:
    """Who saw the runs of a result while they were made, as far as the result itself shows."""
    watched = bool(facts) and all(run.chain is not None and run.chain.nonce for run in facts)
    return ATTESTED if watched else NOT_ATTESTED


def _identities(evidence: RunEvidence) -> Iterator[str]:
    happened, metered = hashlib.sha256(), hashlib.sha256()
    for event in evidence.events:
        happened.update(f"{event.writer} {event.kind.value} {event.time!r}\n".encode())
    if evidence.events:
        yield happened.hexdigest()
    for rank in evidence.metered.values():
        for session in rank.sessions:
            metered.update(session.mono.tobytes() + session.at.tobytes())
    if evidence.metered:
        yield metered.hexdigest()


def examine_runs(facts: Sequence[RunFacts], promise: Promise) -> list[Reason]:
    """What the rules find in the runs of one result together."""
    return [
        Reason(code=code, message=message)
        for code, find in ACROSS.items()
        for message in islice(find(facts, promise), MOST_MESSAGES)
    ]


def _overlap(facts: Sequence[RunFacts], promise: Promise) -> Iterator[str]:
    """Runs follow one another in the order of their numbers, after the result was begun."""
    known = [f for f in facts if f.submitted is not None]
    for before, after in pairwise(known):
        assert before.submitted is not None and after.submitted is not None
        ended = before.finished if before.finished is not None else before.submitted
        if after.submitted < ended - OTHER_MACHINE:
            yield f"run {after.index} was submitted {ended - after.submitted:.1f} s before run {before.index} had ended"
    try:
        begun = calendar.timegm(time.strptime(promise.created, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        yield f"the result was created at {promise.created:.40}, which is not a valid time"
        return
    for run in known[:1]:
        labelled = promise.label in run.labels
        if labelled and run.submitted is not None and run.submitted < begun - OTHER_MACHINE:
            yield f"run {run.index} was submitted {begun - run.submitted:.0f} s before the result was begun"


def _labels(facts: Sequence[RunFacts], promise: Promise) -> Iterator[str]:
    """Each run has the label of this result and its own number, or none does."""
    labelled = [f for f in facts if promise.label in f.labels]
    for run in labelled:
        expected = f"{promise.id}-run-{run.index:03d}"
        if run.labels[promise.label] != expected:
            yield f"run {run.index} was started as {run.labels[promise.label]:.80}, not as {expected:.80}"
    if labelled and len(labelled) < len(facts):
        names = ", ".join(str(f.index) for f in facts if f not in labelled)
        yield f"run {names} was not started for this result"


def _jobs(facts: Sequence[RunFacts], promise: Promise) -> Iterator[str]:
    """All runs are of one job and one engine: only the seed differs."""
    for run in facts[1:]:
        if run.engine != facts[0].engine:
            yield f"run {run.index} ran on engine {run.engine:.40}, run {facts[0].index} on {facts[0].engine:.40}"
    known = [f for f in facts if f.job is not None]
    for run in known[1:]:
        first, other = known[0].job or {}, run.job or {}
        for name in sorted({*first, *other} - {"parameters"}):
            if first.get(name) != other.get(name):
                yield f"run {run.index}: job.yaml has another {name} than that of run {known[0].index}"
        left, right = first["parameters"], other["parameters"]
        for name in sorted({*left, *right} - {promise.rules.seed_parameter}):
            if left.get(name) != right.get(name):
                yield (
                    f"run {run.index} was given {name}={str(right.get(name))[:40]}, "
                    f"run {known[0].index} {str(left.get(name))[:40]}"
                )


def _batches(facts: Sequence[RunFacts], promise: Promise) -> Iterator[str]:
    """All runs have one global batch size."""
    for run in facts[1:]:
        if run.batch != facts[0].batch:
            yield f"run {run.index} has global batch size {run.batch or 'none'}, run {facts[0].index} {facts[0].batch or 'none'}"


def _clocks(facts: Sequence[RunFacts], promise: Promise) -> Iterator[str]:
    """Runs on this machine share its clocks, unless it was started again between them."""
    if any(f.engine != LOCAL for f in facts):
        return
    for before, after in pairwise(facts):
        for host in before.hosts.keys() & after.hosts.keys():
            (offset, wall), (later_offset, later_wall) = before.hosts[host], after.hosts[host]
            apart = abs(later_offset - offset)
            restarted = (before.finished or wall) - CLOCK_SLACK <= later_offset <= later_wall
            if apart > CLOCK_SLACK + CLOCK_DRIFT * abs(later_wall - wall) and not restarted:
                yield f"the clocks of {host:.60} moved by {apart:.1f} s between run {before.index} and run {after.index}"


def _alike(facts: Sequence[RunFacts], promise: Promise) -> Iterator[str]:
    """No run's step times were made from another's, whatever noise, rounding or stretching was added."""
    for before, after in combinations(facts, 2):
        for rank, turns in before.turns.items():
            for other, known in after.turns.items():
                if turns.is_alike(known):
                    share = turns.agreement(known)
                    yield (
                        f"rank {other} of run {after.index} has the step times of rank {rank} of run {before.index}: "
                        f"{share:.0%} of the steps are longer or shorter than the one before in both"
                    )
                    break


def _samples(facts: Sequence[RunFacts], promise: Promise) -> Iterator[str]:
    """No run's samples are those of another run."""
    for before, after in combinations(facts, 2):
        for (node, name), series in before.samples.items():
            if is_copied(series, after.samples.get((node, name), ())):
                yield f"node {node} of run {after.index} has the readings {name} of run {before.index}"
                break


def _scalars(job: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "launcher", "contract", "entry", "command", "environment", "mode")
    return {name: job[name] for name in kept if isinstance(job.get(name), str | int | float | bool)}


Find = Callable[[Sequence[RunFacts], Promise], Iterator[str]]
ACROSS: dict[str, Find] = {
    "runs-overlap": _overlap,
    "label-differs": _labels,
    "jobs-differ": _jobs,
    "batches-differ": _batches,
    "clocks-moved": _clocks,
    "runs-alike": _alike,
    "samples-reused": _samples,
}
