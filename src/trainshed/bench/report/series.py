"""What the plots of a report show, taken from the evidence of its runs. Draws nothing."""

from __future__ import annotations

from trainshed.bench.measure import power
from trainshed.bench.measure.evidence import RunEvidence
from trainshed.bench.measure.meter_file import MeterSession
from trainshed.bench.report.svg import Bar, Series
from trainshed.bench.result import RunResult

BINS = 80
# A phase that no bar can show is left out of the plot.
SHORTEST_SHARE = 0.004


def start_of(evidence: RunEvidence) -> float | None:
    """The wall time of the first start mark, which is zero on the time axes."""
    sessions = [s for r in evidence.ranks.values() for s in r.sessions]
    marks = [m.wall for s in sessions if (m := s.first("start")) is not None]
    return min(marks) if marks else None


def throughput(evidence: RunEvidence, zero: float) -> tuple[list[Series], list[tuple[float, float]]]:
    """Samples a second over time for each node, and the stretches of evaluation."""
    sessions = {r.rank: (r.node, r.session) for r in evidence.ranks.values() if r.session and r.session.at}
    if not sessions:
        return [], []
    end = max(s.wall_of(s.at[-1]) - zero for _, s in sessions.values())
    width = max(end / BINS, 1e-3)
    per_node: dict[int, list[float]] = {}
    for node, session in sessions.values():
        counts = per_node.setdefault(node, [0.0] * BINS)
        _spread(session, zero, width, counts)
    found = [
        Series(f"node {node}", [((i + 0.5) * width, c / width) for i, c in enumerate(counts)])
        for node, counts in sorted(per_node.items())
    ]
    lead = sessions[min(sessions)][1]
    return found, [(a - zero, b - zero) for a, b in _evaluations(lead)]


def quality(runs: list[RunResult], name: str) -> list[Series]:
    found = []
    for run in runs:
        points = [(e.seconds, e.value) for e in run.evaluations if e.name == name]
        found.append(Series(f"run {run.index}", points, dots=True))
    return found


def use(evidence: RunEvidence, zero: float) -> tuple[list[Series], str]:
    """Use of devices where there are any, else of the processor, for each node; and which of them."""
    devices = any(d.util_percent is not None for m in evidence.metrics.values() for s in m for d in s.devices)
    found = []
    for node, samples in sorted(evidence.metrics.items()):
        points = []
        for sample in samples:
            values = [d.util_percent for d in sample.devices if d.util_percent is not None]
            if devices and values:
                points.append((sample.t - zero, sum(values) / len(values)))
            elif not devices and sample.cpu_percent is not None:
                points.append((sample.t - zero, sample.cpu_percent))
        found.append(Series(f"node {node}", points))
    return [s for s in found if s.points], "Device use" if devices else "Processor use"


def watts(evidence: RunEvidence, zero: float) -> list[Series]:
    found = []
    for node, samples in sorted(evidence.metrics.items()):
        points = [(t - zero, w) for t, w in power.series(evidence, node, samples)]
        if points:
            found.append(Series(f"node {node}", points))
    return found


def phases(evidence: RunEvidence, run: RunResult) -> list[Bar]:
    """The agents' phases for each node, then those of the lowest rank."""
    found = [Bar(f"node {node}", name, a, b) for node, name, a, b in evidence.phases]
    training = [p for p in run.phases if p.name == "training"]
    others = [p for p in run.phases if p.name != "training"]
    rank = f"rank {min(evidence.ranks, default=0)}"
    # Training first, so that evaluation is on top of it.
    found += [Bar(rank, p.name, p.start, p.end) for p in [*training, *others]]
    if not found:
        return []
    span = max(b.end for b in found) - min(b.start for b in found)
    names = {b.name for b in found if b.end - b.start >= span * SHORTEST_SHARE}
    return [b for b in found if b.name in names]


def _spread(session: MeterSession, zero: float, width: float, counts: list[float]) -> None:
    """Each step's samples, evenly over the time since the step before it or the evaluation in between."""
    pauses = [stop - zero for _, stop in _evaluations(session)]
    start = session.first("start")
    previous = (start.wall if start else session.wall_of(session.at[0])) - zero
    offset = session.clock_offset - zero
    pause = 0
    for moment, samples in zip(session.at, session.samples, strict=True):
        end = moment + offset
        begin = previous
        while pause < len(pauses) and pauses[pause] < end:
            begin = max(begin, pauses[pause])
            pause += 1
        length = end - begin
        first, last = int(begin / width), int(end / width)
        if first == last and 0 <= first < BINS and length > 0:
            counts[first] += samples
        else:
            for i in range(max(0, first), min(BINS - 1, last) + 1):
                part = min(end, (i + 1) * width) - max(begin, i * width)
                share = part / length if length > 0 else 1.0
                counts[i] += samples * max(0.0, share)
        previous = end


def _evaluations(session: MeterSession) -> list[tuple[float, float]]:
    found, opened = [], None
    for mark in session.marks:
        if mark.event == "eval_start":
            opened = mark.wall
        elif mark.event == "eval_stop" and opened is not None:
            found.append((opened, mark.wall))
            opened = None
    return found
