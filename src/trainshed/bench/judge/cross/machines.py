"""Rules about machines: the agents' samples, the power readings and the clocks agree with the work that is claimed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from trainshed.bench.judge.cross import OTHER_MACHINE, SAME_MACHINE, Case, rule
from trainshed.bench.judge.faults import CLOCK_DRIFT, CLOCK_SLACK_SECONDS
from trainshed.bench.measure.evidence import NodeSample
from trainshed.runs.events import Finished, Submitted

# A second is sampled once; a busy machine may lose half of them.
MIN_COVERAGE = 0.4
MIN_SECONDS = 10.0
"""Shorter runs have too few samples to say anything."""
MIN_EVEN = 20
"""This many equal readings in a row are not real readings."""
IDLE_CPU_PERCENT = 1.0
IDLE_DEVICE_PERCENT = 0.5
BYTES_PER_STEP = 64.0
MAX_DEVICE_WATTS, MAX_NODE_WATTS = 3_000.0, 50_000.0
MOST_CORES = 4096
MOST_COPIED = 0.8
CPU = "cpu"


@rule("samples-outside-run")
def samples_in_run(case: Case) -> Iterator[str]:
    """The agents' samples and the power readings follow one another and lie between submission and end of the run."""
    begun = [event.time for event, _ in case.evidence.bodies(Submitted)]
    ended = [event.time for event, _ in case.evidence.bodies(Finished)]
    taken = [(node, "a sample", [s.t for s in samples]) for node, samples in case.evidence.metrics.items()]
    taken += [
        (node, "a power reading", [t for t, _ in points]) for node, points in case.evidence.watts.items()
    ]
    for node, what, times in taken:
        for before, after in pairwise(times):
            if after < before - SAME_MACHINE:
                yield f"node {node}: {what} was taken {before - after:.1f} s before the previous one"
                break
        for t in times:
            if (begun and t < begun[0] - OTHER_MACHINE) or (ended and t > ended[-1] + OTHER_MACHINE):
                yield f"node {node}: {what} is outside the run"
                break


@rule("samples-gaps")
def samples_cover_run(case: Case) -> Iterator[str]:
    """The agents sampled each node while its ranks measured."""
    for node, (low, high) in _spans(case).items():
        if node not in case.evidence.metrics or high - low < MIN_SECONDS:
            continue
        seconds = {int(s.t) for s in case.evidence.metrics[node] if low <= s.t <= high}
        if len(seconds) < MIN_COVERAGE * (high - low):
            yield f"node {node} was sampled in {len(seconds)} of {high - low:.0f} s that its ranks measured"


@rule("sample-range")
def samples_possible(case: Case) -> Iterator[str]:
    """Use lies between 0 and 100 % (of a node's processes, of all its cores), memory and counters are not negative."""
    for node, samples in case.evidence.metrics.items():
        for sample in samples:
            shares = [sample.cpu_percent, *(d.util_percent for d in sample.devices)]
            amounts = [
                sample.node_cpu_percent,
                sample.memory_bytes,
                sample.net_sent_bytes,
                sample.net_received_bytes,
            ]
            amounts += [d.memory_bytes for d in sample.devices]
            if (
                any(x is not None and not 0 <= x <= 100.5 for x in shares)
                or any(x is not None and x < 0 for x in amounts)
                or (sample.node_cpu_percent or 0.0) > 100 * MOST_CORES
            ):
                yield f"node {node}: a sample has an impossible utilisation or size"
                break


@rule("samples-even")
def samples_vary(case: Case) -> Iterator[str]:
    """Readings of a working machine vary: use, memory and traffic are not the same for many seconds."""
    for node, samples in case.evidence.metrics.items():
        during = _during(case, node, samples)
        rows = [(s.cpu_percent, s.node_cpu_percent, s.memory_bytes, s.net_sent_bytes) for s in during]
        known = [row for row in rows if row[0] is not None]
        if len(known) >= MIN_EVEN and len(set(known)) < len(known) / 4:
            yield f"node {node}: {len(known)} samples show only {len(set(known))} different readings"


@rule("samples-copied")
def nodes_differ(case: Case) -> Iterator[str]:
    """No node's use of the processor is that of another node, reading by reading."""
    known: list[tuple[int, list[float]]] = []
    for node, samples in sorted(case.evidence.metrics.items()):
        own = [s.node_cpu_percent for s in samples if s.node_cpu_percent is not None]
        # The first node and the neighbour: comparing all with all would not be linear.
        for other, series in dict(known[:1] + known[-1:]).items():
            if is_copied(own, series):
                yield f"the processes of node {node} used just as much of the processor as those of node {other}"
        known = [*known[:1], (node, own)]


def is_copied(left: Sequence[float], right: Sequence[float]) -> bool:
    """Whether two series of readings that vary are the same."""
    count = min(len(left), len(right))
    if count < MIN_SECONDS or len(set(left[:count])) <= count / 2:
        return False
    return sum(a == b for a, b in zip(left, right, strict=False)) > MOST_COPIED * count


@rule("cpu-idle")
def processors_work(case: Case) -> Iterator[str]:
    """While ranks trained, their node's processes used the processor."""
    for node, samples in case.evidence.metrics.items():
        during = _during(case, node, samples)
        used = [s.node_cpu_percent for s in during if s.node_cpu_percent is not None]
        if len(used) >= MIN_SECONDS and fmean(used) < IDLE_CPU_PERCENT and _is_cpu(case):
            yield f"node {node}: ranks claim to have trained while their processes used {fmean(used):.2f}% of a processor"


@rule("device-idle")
def devices_work(case: Case) -> Iterator[str]:
    """While ranks trained on accelerators, the accelerators and their memory were used."""
    for node, samples in case.evidence.metrics.items():
        during = _during(case, node, samples)
        used = [d.util_percent for s in during for d in s.devices if d.util_percent is not None]
        if len(during) >= MIN_SECONDS and used and fmean(used) < IDLE_DEVICE_PERCENT and not _is_cpu(case):
            yield f"node {node}: ranks claim to have trained while devices were used {fmean(used):.2f}%"
        held = [d.memory_bytes for s in during for d in s.devices if d.memory_bytes is not None]
        if len(during) >= MIN_SECONDS and held and max(held) == 0 and not _is_cpu(case):
            yield f"node {node}: ranks claim to have trained while nothing lay in the memory of devices"


@rule("network-idle")
def network_works(case: Case) -> Iterator[str]:
    """Synchronous ranks of several nodes that train on processors send something in every step."""
    if case.rules.nodes < 2 or not case.rules.synchronous or case.rules.single_server or not _is_cpu(case):
        return
    for node, samples in case.evidence.metrics.items():
        during = [s.net_sent_bytes for s in _during(case, node, samples) if s.net_sent_bytes is not None]
        steps = min((s.step_count for r, s in case.sessions if r.node == node), default=0)
        if len(during) >= MIN_SECONDS and during[-1] - during[0] < BYTES_PER_STEP * steps / 2:
            yield f"node {node} sent {during[-1] - during[0]:.0f} bytes during {steps} steps with other nodes"


@rule("counter-backwards")
def counters_grow(case: Case) -> Iterator[str]:
    """Counters of bytes that were sent, received, read and written never fall."""
    for node, samples in case.evidence.metrics.items():
        for name in ("net_sent_bytes", "net_received_bytes", "disk_read_bytes", "disk_write_bytes"):
            values = [v for s in samples if (v := getattr(s, name)) is not None]
            if any(after < before for before, after in pairwise(values)):
                yield f"node {node}: {name} falls"


@rule("watts-implausible")
def watts_plausible(case: Case) -> Iterator[str]:
    """Power readings are positive and no more than a device or a node can take."""
    for node, samples in case.evidence.metrics.items():
        for device in (d for s in samples for d in s.devices if d.power_watts is not None):
            assert device.power_watts is not None
            if not 0 < device.power_watts <= MAX_DEVICE_WATTS:
                yield f"node {node}: device {device.index} took {device.power_watts:g} W"
                break
    for node, points in case.evidence.watts.items():
        for _, watts in points:
            if not 0 < watts <= MAX_NODE_WATTS:
                yield f"node {node} took {watts:g} W"
                break


@rule("watts-even")
def watts_vary(case: Case) -> Iterator[str]:
    """Power of a working device or node varies."""
    for node, samples in case.evidence.metrics.items():
        by_device: dict[int, list[float]] = {}
        for device in (d for s in samples for d in s.devices if d.power_watts is not None):
            by_device.setdefault(device.index, []).append(device.power_watts or 0.0)
        for index, values in by_device.items():
            if len(values) >= 3 * MIN_EVEN and len(set(values)) == 1:
                yield f"node {node}: device {index} took {values[0]:g} W in all {len(values)} readings"
    for node, points in case.evidence.watts.items():
        if len(points) >= 3 * MIN_EVEN and len({watts for _, watts in points}) == 1:
            yield f"node {node} took {points[0][1]:g} W in all {len(points)} readings"


@rule("clocks-disagree")
def clocks_agree(case: Case) -> Iterator[str]:
    """All ranks of a node read the same two clocks."""
    first: dict[int, tuple[int, float, float]] = {}
    for rank, session in case.sessions:
        known = first.setdefault(rank.node, (rank.rank, session.clock_offset, session.mono[0]))
        apart = abs(session.clock_offset - known[1])
        if apart > CLOCK_SLACK_SECONDS + CLOCK_DRIFT * abs(session.mono[0] - known[2]):
            yield f"rank {known[0]} and rank {rank.rank} of node {rank.node} have clocks that differ by {apart:.1f} s"


def _spans(case: Case) -> dict[int, tuple[float, float]]:
    """Of each node, the wall time during which its ranks did steps."""
    found: dict[int, tuple[float, float]] = {}
    for rank, session in case.sessions:
        if session.at:
            low, high = session.wall_of(session.at[0]), session.wall_of(session.at[-1])
            known = found.get(rank.node, (low, high))
            found[rank.node] = (min(known[0], low), max(known[1], high))
    return found


def _during(case: Case, node: int, samples: Sequence[NodeSample]) -> list[NodeSample]:
    span = _spans(case).get(node)
    return [s for s in samples if span and span[0] <= s.t <= span[1]]


def _is_cpu(case: Case) -> bool:
    plan = case.evidence.plan
    return plan is None or plan.kind in ("", CPU) or plan.emulated
