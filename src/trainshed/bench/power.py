"""Device use, power and energy of a run from the agents' samples, each with source and coverage.

Energy is the sum of reading × time to the next reading. A power figure needs at
least one sample a second and sixty samples; otherwise it says why there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from trainshed.bench.evidence import NodeSample, RunEvidence
from trainshed.bench.result import Measured, NotMeasured, Power, Quantity
from trainshed.bench.statistics import median

MIN_SAMPLES = 60
MAX_INTERVAL_SECONDS = 1.25
SOURCES = {"nvidia": "NVML", "gpu": "NVML", "ascend": "npu-smi", "npu": "npu-smi"}


def summarise(
    evidence: RunEvidence, started: float | None, ended: float | None
) -> tuple[Quantity, Quantity, Power]:
    """(device use, CPU use, power) between the first and the last mark of the run."""
    nodes = {n: _within(samples, started, ended) for n, samples in sorted(evidence.metrics.items())}
    nodes = {n: samples for n, samples in nodes.items() if samples}
    if not nodes:
        missing = NotMeasured(not_measured="the agents left no samples of this run")
        return missing, missing, Power(average=missing, maximum=missing, energy=missing)
    return (
        _device_use(evidence, nodes, started, ended),
        _cpu_use(nodes, started, ended),
        _power(evidence, nodes, started, ended),
    )


def series(evidence: RunEvidence, node: int, samples: Sequence[NodeSample]) -> list[tuple[float, float]]:
    """(time, watts) of a node: the node's own where RAPL or a BMC was read, else its devices' sum."""
    if evidence.watts.get(node):
        return evidence.watts[node]
    found = []
    for sample in samples:
        watts = [d.power_watts for d in sample.devices if d.power_watts is not None]
        if watts:
            found.append((sample.t, sum(watts)))
    return found


def energy(points: Sequence[tuple[float, float]]) -> float:
    """Joules: every reading holds until the next one."""
    return sum(watts * (after - t) for (t, watts), (after, _) in pairwise(points))


def _power(
    evidence: RunEvidence, nodes: dict[int, list[NodeSample]], started: float | None, ended: float | None
) -> Power:
    per_node = {
        n: [p for p in series(evidence, n, samples) if _inside(p[0], started, ended)]
        for n, samples in nodes.items()
    }
    silent = [n for n, points in per_node.items() if not points]
    reason = ""
    if silent:
        names = ", ".join(map(str, silent))
        reason = (
            f"node {names} gave no power reading (its devices give none, and --power named no RAPL or BMC)"
        )
    elif (fewest := min(len(p) for p in per_node.values())) < MIN_SAMPLES:
        reason = f"{fewest} power samples are too few, {MIN_SAMPLES} are needed"
    elif (slowest := max(_interval(p) for p in per_node.values())) > MAX_INTERVAL_SECONDS:
        reason = f"power was sampled every {slowest:.2f} s, at least one sample a second is needed"
    if reason:
        missing = NotMeasured(not_measured=reason)
        return Power(average=missing, maximum=missing, energy=missing)
    joules = sum(energy(p) for p in per_node.values())
    seconds = max(p[-1][0] - p[0][0] for p in per_node.values())
    highest = sum(max(w for _, w in p) for p in per_node.values())
    readers = {evidence.watts_source.get(n) or _readers(samples) for n, samples in nodes.items()}
    reader = ", ".join(sorted(readers))
    source = f"{reader}; {_coverage(nodes, started, ended)}"
    return Power(
        average=Measured(value=joules / seconds, unit="W", source=source),
        maximum=Measured(value=highest, unit="W", source=source + "; sum of the nodes' highest readings"),
        energy=Measured(value=joules, unit="J", source=source),
    )


def _device_use(
    evidence: RunEvidence, nodes: dict[int, list[NodeSample]], started: float | None, ended: float | None
) -> Quantity:
    found = [
        d for samples in nodes.values() for s in samples for d in s.devices if d.util_percent is not None
    ]
    if not found:
        return NotMeasured(not_measured=evidence.devices_not_measured or "the agents saw no accelerator")
    readers = ", ".join(sorted({SOURCES.get(d.kind, d.kind) for d in found}))
    use = fmean(d.util_percent for d in found if d.util_percent is not None)
    return Measured(value=use, unit="%", source=f"{readers}; {_coverage(nodes, started, ended)}")


def _cpu_use(nodes: dict[int, list[NodeSample]], started: float | None, ended: float | None) -> Quantity:
    found = [s.cpu_percent for samples in nodes.values() for s in samples if s.cpu_percent is not None]
    if not found:
        return NotMeasured(not_measured="the agents read no CPU use")
    return Measured(value=fmean(found), unit="%", source=f"agent; {_coverage(nodes, started, ended)}")


def _coverage(nodes: dict[int, list[NodeSample]], started: float | None, ended: float | None) -> str:
    interval = max(_interval([(s.t, 0.0) for s in samples]) for samples in nodes.values())
    if interval == 0 or started is None or ended is None or ended <= started:
        return "one sample"
    covered = min(sum(1 for _ in s) * interval for s in nodes.values()) / (ended - started)
    return f"every {interval:.2g} s, coverage {min(1.0, covered):.0%}"


def _interval(points: Sequence[tuple[float, float]]) -> float:
    gaps = [b[0] - a[0] for a, b in pairwise(points)]
    return median(gaps) if gaps else 0.0


def _within(samples: list[NodeSample], started: float | None, ended: float | None) -> list[NodeSample]:
    if started is None or ended is None:
        return samples
    return [s for s in samples if _inside(s.t, started, ended)]


def _inside(t: float, started: float | None, ended: float | None) -> bool:
    return started is None or ended is None or started <= t <= ended


def _readers(samples: list[NodeSample]) -> str:
    kinds = {SOURCES.get(d.kind, d.kind) for s in samples for d in s.devices if d.power_watts is not None}
    return ", ".join(sorted(kinds))
