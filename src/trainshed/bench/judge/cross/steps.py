"""Rules about work: samples, epochs and the pace of ranks against the data set, the batch and one another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from math import ceil

from trainshed.bench.judge.cross import OTHER_MACHINE, SAME_MACHINE, Case, rule
from trainshed.bench.judge.cross.agreement import BATCH
from trainshed.bench.measure.evidence import RankEvidence
from trainshed.bench.measure.meter_file import MeterSession
from trainshed.bench.measure.reading import reading

# Samples may be fractions of others; a sum of floats is not exact.
ROUNDING = 1 + 1e-9
# What compiling, loading and caching may change in how fast a step is, between one step and the usual one.
SLOWEST_SHARE = 0.02


@rule("samples-per-epoch")
def samples_of_epochs(case: Case) -> Iterator[str]:
    """No epoch has more samples than the data set and one batch of padding for each rank; nor have all epochs together."""
    size = train_samples(case)
    if size is None:
        return
    for ranks in _groups(case):
        sums: dict[float, float] = {}
        padding, total, epochs = 0.0, 0.0, 0.0
        for _, session in ranks:
            padding += max(session.samples, default=0.0)
            total += sum(session.samples)
            for number, samples in _epochs(session):
                sums[number] = sums.get(number, 0.0) + samples
            claimed = [float(m.fields.get("epoch") or 0) for m in session.all("quality")]
            epochs = max([epochs, *claimed])
        for number, samples in sums.items():
            if samples > (size + padding) * ROUNDING:
                yield f"epoch {number:g} has {samples:g} samples, the data set {size:g}"
        passes = max([epochs, *sums]) if sums or epochs else 0.0
        if passes >= 1 and total > (size + padding) * (passes + 1) * ROUNDING:
            yield f"{passes:g} epochs have {total:g} samples, the data set {size:g}"


@rule("samples-per-step")
def samples_of_steps(case: Case) -> Iterator[str]:
    """A step has the global batch size over the ranks, or less at the end of an epoch."""
    for rank, session in case.sessions:
        batch = _batch(session)
        if batch is None or not session.at:
            continue
        each = batch / max(1, session.world)
        most = ceil(each)
        per_step = sorted(s / c for s, c in zip(session.samples, session.counts, strict=True))
        if per_step[-1] > most * ROUNDING:
            yield f"rank {rank.rank} did {per_step[-1]:g} samples in a step, {batch:g} over {session.world} ranks are {each:g}"
        usual = per_step[len(per_step) // 2]
        if len(per_step) >= 20 and usual < int(each) / ROUNDING:
            yield f"rank {rank.rank} did mostly {usual:g} samples in a step, {batch:g} over {session.world} ranks are {each:g}"


@rule("start-order")
def start_and_stop(case: Case) -> Iterator[str]:
    """Training starts once, before the first step and the first evaluation, and stops after the last step."""
    for rank, session in case.sessions:
        starts, stops = session.all("start"), session.all("stop")
        if len(starts) > 1:
            yield f"rank {rank.rank} started training {len(starts)} times"
        if starts and session.at and starts[0].mono > session.at[0] + 1e-6:
            yield f"rank {rank.rank} did its first step {starts[0].mono - session.at[0]:.3f} s before it started"
        first = session.first("eval_start")
        if starts and first is not None and first.mono < starts[0].mono:
            yield f"rank {rank.rank} evaluated before it started"
        if stops and session.at and stops[-1].mono < session.at[-1] - 1e-6:
            yield f"rank {rank.rank} did steps after it had stopped"


@rule("step-outside-line")
def steps_in_lines(case: Case) -> Iterator[str]:
    """No step ended before its meter was opened or after it was closed."""
    for rank, session in case.sessions:
        if session.at and (
            session.at[0] < session.mono[0] - 1e-3 or session.at[-1] > session.mono[-1] + 1e-3
        ):
            yield f"rank {rank.rank} did steps outside of the time that its meter was open"


@rule("epoch-order")
def epochs_in_order(case: Case) -> Iterator[str]:
    """Epochs are begun one after another, and a quality is of the epoch in which it was measured."""
    for rank, session in case.sessions:
        current: float | None = None
        for mark in session.marks:
            epoch = reading(mark.fields.get("epoch"))
            if epoch is None:
                continue
            if mark.event == "epoch_start":
                if current is not None and epoch <= current:
                    yield f"rank {rank.rank} began epoch {epoch:g} after epoch {current:g}"
                current = epoch
            elif mark.event == "quality" and current is not None and not current - 1 <= epoch <= current + 1:
                yield f"rank {rank.rank} measured a quality of epoch {epoch:g} in epoch {current:g}"


@rule("epochs-skipped")
def epochs_worked(case: Case) -> Iterator[str]:
    """The epochs that were begun are as many as the epoch that a quality is of."""
    for rank, session in case.sessions:
        begun = len(session.all("epoch_start"))
        claimed = max((float(m.fields.get("epoch") or 0) for m in session.all("quality")), default=0.0)
        if begun and claimed > begun + 1:
            yield f"rank {rank.rank} claims epoch {claimed:g} and began {begun}"


@rule("not-in-step")
def lock_step(case: Case) -> Iterator[str]:
    """Of synchronous ranks none ends step k before every other has ended step k - 1."""
    if not case.rules.synchronous:
        return
    for ranks in _groups(case):
        walls = [_ends(session) for _, session in ranks]
        if len(walls) < 2 or len({len(w) for w in walls}) > 1:
            continue  # a different number of steps has its own finding
        booted = [session.clock_offset for _, session in ranks]
        # Machines that were started at the same moment are one machine, with one clock.
        slack = SAME_MACHINE if max(booted) - min(booted) < SAME_MACHINE else OTHER_MACHINE
        latest_before = float("-inf")
        for k, ends in enumerate(zip(*walls, strict=True)):
            if min(ends) < latest_before - slack:
                late, early = latest_before - min(ends), ranks[ends.index(min(ends))][0].rank
                yield f"rank {early} ended entry {k + 1} of its steps {late:.1f} s before others had ended entry {k}"
                break
            latest_before = max(ends)


@rule("pace-differs")
def same_pace(case: Case) -> Iterator[str]:
    """Synchronous ranks took the same time for all their steps."""
    if not case.rules.synchronous:
        return
    for ranks in _groups(case):
        spent = {r.rank: s.at[-1] - s.at[0] for r, s in ranks if len(s.at) > 1}
        if len(spent) < 2:
            continue
        slow, fast = max(spent, key=spent.__getitem__), min(spent, key=spent.__getitem__)
        if spent[slow] - spent[fast] > 2 * SAME_MACHINE + SLOWEST_SHARE * spent[slow]:
            yield f"rank {fast} did its steps in {spent[fast]:.1f} s, rank {slow} in {spent[slow]:.1f} s"


def train_samples(case: Case) -> float | None:
    """The size of the training set: of the rules, else as the ranks say."""
    if case.rules.dataset is not None and case.rules.dataset.train_samples is not None:
        return float(case.rules.dataset.train_samples)
    found = {reading(m.fields.get("train_samples")) for _, s in case.sessions for m in s.all("dataset")}
    sizes = [size for size in found if size is not None]
    return max(sizes, default=None)


def _groups(case: Case) -> list[list[tuple[RankEvidence, MeterSession]]]:
    """The ranks that train one model together: all of them, or those of a node."""
    if not case.rules.single_server:
        return [list(case.sessions)]
    nodes: dict[int, list[tuple[RankEvidence, MeterSession]]] = {}
    for rank, session in case.sessions:
        nodes.setdefault(rank.node, []).append((rank, session))
    return list(nodes.values())


def _epochs(session: MeterSession) -> Iterator[tuple[float, float]]:
    """(number, samples) of each epoch of a rank."""
    totals = [0.0, *accumulate(session.samples)]
    opened: tuple[float, float] | None = None
    for mark in session.marks:
        number = reading(mark.fields.get("epoch"))
        if number is None:
            continue
        if mark.event == "epoch_start":
            opened = (number, mark.mono)
        elif mark.event == "epoch_stop" and opened is not None:
            low, high = bisect_right(session.at, opened[1] - 1e-6), bisect_right(session.at, mark.mono + 1e-6)
            yield opened[0], max(0.0, totals[high] - totals[low])
            opened = None


def _batch(session: MeterSession) -> float | None:
    marks = [m for m in session.all("setting") if m.fields.get("key") == BATCH]
    value = reading(marks[0].fields.get("value")) if marks else None
    return value if value is not None and value > 0 else None


def _ends(session: MeterSession) -> list[float]:
    """The wall time at which each entry of steps ended."""
    offset = session.clock_offset
    return [t + offset for t in session.at]
