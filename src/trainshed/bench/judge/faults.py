"""What can be wrong with the evidence of a run, each found by one function and named by a code.

A fault here means that the run's numbers must not be used. It measures nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TypeGuard

from trainshed.bench.judge.rules import DatasetRule, Rules
from trainshed.bench.measure.evidence import RankEvidence, RunEvidence, final_state
from trainshed.bench.measure.ingest import Ingested, speakers
from trainshed.bench.measure.meter_file import Mark, MeterSession
from trainshed.bench.measure.window import evaluation_spans
from trainshed.bench.result import Reason
from trainshed.runs.events import Finished
from trainshed.runs.outcome import Failure

# Wall and monotonic clocks may drift apart by slewing (500 ppm); more is a jump.
CLOCK_SLACK_SECONDS = 0.1
CLOCK_DRIFT = 0.0005
# Times of steps are written to the microsecond, those of marks in full.
STEP_TIME_SLACK = 1e-6
SUCCEEDED = "succeeded"
ENDED_BADLY = {"failed", "stopped", "lost", "unfinished"}


def state_faults(evidence: RunEvidence) -> list[Reason]:
    state = final_state(evidence)
    if state not in ENDED_BADLY:
        return []
    failure = first_failure(evidence)
    why = f": {failure.reason:.300}" if failure else ""
    return [Reason(code="run-failed", message=f"the run ended as {state!r}{why}")]


def first_failure(evidence: RunEvidence) -> Failure | None:
    """What went wrong first, as recorded at the end of the run."""
    return next((body.outcome.failure for _, body in evidence.bodies(Finished)[-1:]), None)


def presence_faults(evidence: RunEvidence, metered: dict[int, RankEvidence], rules: Rules) -> list[Reason]:
    found = []
    nodes = {r.node for r in evidence.ranks.values()} | set(evidence.nodes)
    for node in range(rules.nodes):
        if node not in nodes:
            found.append(Reason(code="node-missing", message=f"node {node} of {rules.nodes} left no files"))
    for rank in range(rules.ranks):
        if rank not in metered:
            text = f"rank {rank} of {rules.ranks} has no meter file"
            found.append(Reason(code="rank-missing", message=text))
    for rank in metered:
        if rank >= rules.ranks:
            text = f"rank {rank} is not part of a run of {rules.ranks} ranks"
            found.append(Reason(code="rank-unexpected", message=text))
    if evidence.plan is not None and evidence.plan.size != rules.ranks:
        text = f"the plan has {evidence.plan.size} ranks, the rules ask for {rules.ranks}"
        found.append(Reason(code="shape-differs", message=text))
    return found


def meter_faults(metered: dict[int, RankEvidence], rules: Rules) -> list[Reason]:
    """Where the rules ask for a meter, numbers that a script wrote down itself do not count."""
    if rules.metered and not metered:
        return [Reason(code="meter-missing", message="no rank left a meter file, the rules ask for one")]
    return []


def ingested_faults(other: Ingested, rules: Rules) -> list[Reason]:
    """Ranks and servers that are missing, and those that the run does not have."""
    found = []
    for rank in sorted(set(speakers(rules)) - set(other.throughputs)):
        text = f"rank {rank} of {rules.ranks} has no throughput in {other.origin}"
        found.append(Reason(code="rank-missing", message=text))
    strange = {f"rank {rank}" for rank in other.throughputs if rank >= rules.ranks}
    strange |= {f"server {n}" for n in {*other.servers, *other.accuracies} if n >= rules.nodes}
    strange |= {
        f"rank {rank} of server {n}"
        for n, ranks in other.servers.items()
        for rank in ranks
        if rank >= rules.ranks_per_node
    }
    for name in sorted(strange):
        text = f"{name} left a result and is not part of a run of {rules.nodes} nodes and {rules.ranks} ranks"
        found.append(Reason(code="rank-unexpected", message=text))
    return found


def session_faults(rank: RankEvidence, session: MeterSession, rules: Rules) -> list[Reason]:
    found = []
    name = f"rank {rank.rank}"
    if not session.closed:
        text = f"{name}'s meter file has no closing line: its process was killed or lost"
        found.append(Reason(code="rank-killed", message=text))
    if session.rank != rank.rank:
        text = f"{name}'s meter file says it is of rank {session.rank}"
        found.append(Reason(code="rank-mixed-up", message=text))
    expected = rules.ranks_per_node if rules.single_server else rules.ranks
    if session.world != expected:
        text = f"{name} ran in a world of {session.world}, not {expected}"
        found.append(Reason(code="world-size", message=text))
    if len(rank.sessions) > 1:
        text = f"{name} was started {len(rank.sessions)} times: a restarted run is not a benchmark run"
        found.append(Reason(code="rank-restarted", message=text))
    stop = session.first("stop")
    if stop is not None and stop.fields.get("status") != "success":
        text = f"{name} stopped with status {stop.fields.get('status')!r}"
        found.append(Reason(code="run-aborted", message=text))
    if session.step_count < rules.min_steps:
        did, need = session.step_count, rules.min_steps
        text = f"{name} did {did} steps, the rules ask for {need}: training ended early"
        found.append(Reason(code="early-stop", message=text))
    jump = session.clock_spread()
    if jump > CLOCK_SLACK_SECONDS + CLOCK_DRIFT * (session.mono[-1] - session.mono[0]):
        text = f"the wall clock of {name} jumped by {jump:.3f} s against its monotonic clock"
        found.append(Reason(code="clock-jump", message=text))
    start, first = session.first("start"), session.mono[0]
    if start is not None and start.mono - first > rules.max_prepare_seconds:
        took, limit = start.mono - first, rules.max_prepare_seconds
        text = f"{name} prepared for {took:.0f} s off the clock, {limit:g} s are allowed"
        found.append(Reason(code="prepare-too-long", message=text))
    if during := _steps_during_evaluation(session):
        text = f"{name} ended {during} steps during evaluation, the time of which is not counted"
        found.append(Reason(code="step-in-evaluation", message=text))
    found += _dataset_reasons(name, session, rules.dataset)
    return found


def _steps_during_evaluation(session: MeterSession) -> int:
    ends = session.at
    return sum(
        max(0, bisect_left(ends, high - STEP_TIME_SLACK) - bisect_right(ends, low + STEP_TIME_SLACK))
        for low, high in evaluation_spans(session)
    )


def _dataset_reasons(name: str, session: MeterSession, rule: DatasetRule | None) -> list[Reason]:
    if rule is None or not rule.pins:
        return []
    mark = session.first("dataset")
    if mark is None:
        return [Reason(code="dataset-unknown", message=f"{name} did not record which data set it read")]
    promised = {"name": rule.name, **rule.pins}
    return [reason for key, value in promised.items() for reason in _compared(name, mark, key, value)]


def _compared(name: str, mark: Mark, key: str, value: str | int) -> list[Reason]:
    """Compare one expected property of the data set with what a rank recorded."""
    said, what = mark.fields.get(key), key.replace("_", " ")
    if said is None:
        text = f"{name} did not record the {what} of its data set, the rules ask for {value}"
        return [Reason(code="dataset-unknown", message=text)]
    if said != value:
        text = f"{name} read a data set with {what} {said}, the rules ask for {value}"
        return [Reason(code="dataset-wrong", message=text)]
    return []


def agreement_faults(metered: dict[int, RankEvidence]) -> list[Reason]:
    marks = [m for r in metered.values() if r.session for m in r.session.all("dataset")]
    for name in ("checksum", "train_samples"):
        said = sorted({str(m.fields.get(name))[:80] for m in marks})
        if len(said) > 1:
            text = f"ranks read data sets with different {name}: {', '.join(said[:5])}"
            return [Reason(code="dataset-differs", message=text)]
    return []


def not_finite_faults(metered: dict[int, RankEvidence]) -> list[Reason]:
    found = []
    for rank in metered.values():
        for session in rank.sessions:
            for mark in session.marks:
                value = mark.fields.get("value")
                if mark.event in {"quality", "loss"} and not is_finite(value):
                    shown = mark.fields.get("not_finite", "no number")
                    text = f"rank {rank.rank}: {mark.fields.get('name', 'loss')} became {shown}"
                    found.append(Reason(code="not-finite", message=text))
                    break
    return found


def is_finite(value: object) -> TypeGuard[int | float]:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def lost_steps(metered: dict[int, RankEvidence]) -> dict[int, int]:
    counts = {r: e.session.step_count for r, e in metered.items() if e.session is not None}
    most = max(counts.values(), default=0)
    return {r: most - n for r, n in counts.items() if n < most}
