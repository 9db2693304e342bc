"""Device use, power and energy of a run from the agents' samples, each with source and coverage.

Energy is the sum of reading × time to the next reading. A power figure needs
readings of every node: sixty or more, one a second, over the whole run without
a long silence; otherwise it says why there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from trainshed.bench.measure.evidence import NodeSample, RunEvidence
from trainshed.bench.measure.statistics import median
from trainshed.bench.result import Measured, NotMeasured, Power, Quantity

MIN_SAMPLES = 60
MAX_INTERVAL_SECONDS = 1.25
# A reading stands in for a few that were lost, and for nothing longer.
MAX_GAP_SECONDS = 10.0
MIN_COVERAGE = 0.95
SOURCES = {"nvidia": "NVML", "gpu": "NVML", "ascend": "npu-smi", "npu": "npu-smi"}

Points = Sequence[tuple[float, float]]
Span = tuple[float, float]


def summarise(
    evidence: RunEvidence, started: float | None, ended: float | None
) -> tuple[Quantity, Quantity, Power]:
    """(device use, CPU use, power) between the first and the last mark of the run."""
    if not evidence.nodes:
        return _nothing("the agents left no samples of this run")
    if started is None or ended is None or ended <= started:
        return _nothing("there is no record of when the run began and ended")
    span = (started, ended)
    nodes = {
        n: [s for s in evidence.metrics.get(n, []) if started <= s.t <= ended] for n in sorted(evidence.nodes)
    }
    return _device_use(evidence, nodes, span), _cpu_use(nodes, span), _power(evidence, nodes, span)


def series(evidence: RunEvidence, node: int, samples: Sequence[NodeSample]) -> list[tuple[float, float]]:
    """(time, watts) of a node: the node's own where RAPL or a BMC was read, else its devices' sum.

    A sample in which one of the devices gave no power is not a reading of the node.
    """
    if evidence.watts.get(node):
        return sorted(evidence.watts[node])
    devices = max((len(s.devices) for s in samples), default=0)
    found = []
    for sample in samples:
        watts = [d.power_watts for d in sample.devices if d.power_watts is not None]
        if watts and len(watts) == devices:
            found.append((sample.t, sum(watts)))
    return sorted(found)


def energy(points: Points) -> float:
    """Joules: every reading holds until the next one."""
    return sum(watts * (after - t) for (t, watts), (after, _) in pairwise(points))


def _power(evidence: RunEvidence, nodes: Mapping[int, list[NodeSample]], span: Span) -> Power:
    per_node = {
        n: [p for p in series(evidence, n, samples) if span[0] <= p[0] <= span[1]]
        for n, samples in nodes.items()
    }
    if silent := [n for n, points in per_node.items() if not points]:
        names = ", ".join(map(str, silent))
        return _no_power(
            f"node {names} gave no power reading during the run, neither of all its devices nor by --power"
        )
    for n, points in per_node.items():
        if why := _unfit(points, span):
            return _no_power(f"node {n}: {why}")
    joules = {n: energy(p) for n, p in per_node.items()}
    average = sum(joules[n] / (p[-1][0] - p[0][0]) for n, p in per_node.items())
    highest = sum(max(w for _, w in p) for p in per_node.values())
    readers = {evidence.watts_source.get(n) or _readers(samples) for n, samples in nodes.items()}
    source = f"{', '.join(sorted(readers))}; {_stated(per_node, span)}"
    return Power(
        average=Measured(value=average, unit="W", source=source),
        maximum=Measured(value=highest, unit="W", source=source + "; sum of the nodes' highest readings"),
        energy=Measured(value=sum(joules.values()), unit="J", source=source),
    )


def _nothing(why: str) -> tuple[Quantity, Quantity, Power]:
    missing = NotMeasured(not_measured=why)
    return missing, missing, _no_power(why)


def _no_power(why: str) -> Power:
    missing = NotMeasured(not_measured=why)
    return Power(average=missing, maximum=missing, energy=missing)


def _unfit(points: Points, span: Span) -> str:
    """Why one node's readings do not measure its power, or nothing."""
    if len(points) < MIN_SAMPLES:
        return f"{len(points)} power samples are too few, {MIN_SAMPLES} are needed"
    if (interval := _interval(points)) > MAX_INTERVAL_SECONDS:
        return f"power was sampled every {interval:.2f} s, at least one sample a second is needed"
    times = [span[0], *(t for t, _ in points), span[1]]
    if (gap := max(b - a for a, b in pairwise(times))) > MAX_GAP_SECONDS:
        return f"there is no power reading for {gap:.0f} s, at most {MAX_GAP_SECONDS:g} s may be without"
    if (covered := _coverage(points, span)) < MIN_COVERAGE:
        return f"power readings cover {covered:.0%} of the run, {MIN_COVERAGE:.0%} are needed"
    return ""


def _device_use(evidence: RunEvidence, nodes: Mapping[int, list[NodeSample]], span: Span) -> Quantity:
    found = {
        n: [(s.t, d.kind, d.util_percent) for s in samples for d in s.devices if d.util_percent is not None]
        for n, samples in nodes.items()
    }
    if not any(found.values()):
        return NotMeasured(not_measured=evidence.devices_not_measured or "the agents saw no accelerator")
    readers = sorted({SOURCES.get(kind, kind) for each in found.values() for _, kind, _ in each})
    points = {n: [(t, use) for t, _, use in each] for n, each in found.items()}
    return _mean_use(points, span, ", ".join(readers), "device use")


def _cpu_use(nodes: Mapping[int, list[NodeSample]], span: Span) -> Quantity:
    points = {
        n: [(s.t, s.cpu_percent) for s in samples if s.cpu_percent is not None]
        for n, samples in nodes.items()
    }
    return _mean_use(points, span, "agent", "CPU use")


def _mean_use(per_node: Mapping[int, Points], span: Span, reader: str, what: str) -> Quantity:
    if silent := [n for n, points in per_node.items() if not points]:
        return NotMeasured(not_measured=f"node {', '.join(map(str, silent))} left no samples of {what}")
    use = fmean(value for points in per_node.values() for _, value in points)
    return Measured(value=use, unit="%", source=f"{reader}; {_stated(per_node, span)}")


def _stated(per_node: Mapping[int, Points], span: Span) -> str:
    """How often and how much of the run was read, on the node where it was least."""
    interval = max(_interval(points) for points in per_node.values())
    if interval == 0:
        return "one sample"
    covered = min(_coverage(points, span) for points in per_node.values())
    return f"every {interval:.2g} s, coverage {covered:.0%}"


def _coverage(points: Points, span: Span) -> float:
    """The share of the run that readings hold: each until the next, at most twice as long as usual."""
    usual, times = _interval(points), _times(points)
    held = usual + sum(min(b - a, 2 * usual) for a, b in pairwise(times))
    return min(1.0, held / (span[1] - span[0]))


def _interval(points: Points) -> float:
    gaps = [b - a for a, b in pairwise(_times(points))]
    return median(gaps) if gaps else 0.0


def _times(points: Points) -> list[float]:
    """When something was read: several devices at one time are one sample."""
    return sorted({t for t, _ in points})


def _readers(samples: list[NodeSample]) -> str:
    kinds = {SOURCES.get(d.kind, d.kind) for s in samples for d in s.devices if d.power_watts is not None}
    return ", ".join(sorted(kinds))
