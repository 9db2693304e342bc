"""The measured window of a rank and what follows from it: rates, stragglers, steadiness.

It starts where the last warm-up step ended, ends where the last step ended, and
leaves out evaluation. Times are of the rank's own monotonic clock. Every
function passes once over the steps.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import sub, truediv
from statistics import fmean

from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.evidence import RankEvidence
from trainshed.bench.measure.meter_file import MeterSession
from trainshed.bench.measure.statistics import median
from trainshed.bench.result import SteadyState

SEGMENTS = 5

Span = tuple[float, float]


@dataclass(frozen=True)
class RankWindow:
    rank: int
    node: int
    steps: int
    samples: float
    seconds: float
    evaluation_seconds: float
    start: float
    end: float
    warmup: int
    step_times: Sequence[float]
    """Seconds per step of each entry, evaluation left out."""
    ends: Sequence[float]
    """When each entry ended, since the window began, evaluation left out."""
    step_samples: Sequence[float]

    @property
    def rate(self) -> float:
        return self.samples / self.seconds


def warmup_steps(steps: int, rules: Rules) -> int:
    """How many steps are left out at the start."""
    if rules.warmup_steps is not None:
        return rules.warmup_steps
    return max(1, min(50, math.ceil(steps / 10)))


def rank_window(session: MeterSession, rank: RankEvidence, rules: Rules) -> RankWindow | None:
    """The measured window of one rank, or None when nothing is left after warm-up."""
    warmup = warmup_steps(session.step_count, rules)
    done, first = 0, 0
    while first < len(session.at) and done < warmup:
        done += session.counts[first]
        first += 1
    start_mark = session.first("start")
    if first == 0 and start_mark is None:
        return None
    begin = session.at[first - 1] if first else start_mark.mono if start_mark else 0.0
    at, counts, samples = session.at[first:], session.counts[first:], session.samples[first:]
    if not at:
        return None
    pauses = _pauses(session, begin, at[-1])
    seconds = at[-1] - begin - sum(b - a for a, b in pauses)
    if seconds <= 0:
        return None
    ends = _without_pauses(at, begin, pauses)
    spent = array("d", map(sub, ends, (0.0, *islice(ends, len(ends) - 1))))
    if max(counts) > 1:
        spent = array("d", map(truediv, spent, counts))
    return RankWindow(
        rank=rank.rank,
        node=rank.node,
        steps=sum(counts),
        samples=sum(samples),
        seconds=seconds,
        evaluation_seconds=sum(b - a for a, b in pauses),
        start=session.wall_of(begin),
        end=session.wall_of(at[-1]),
        warmup=done,
        step_times=spent,
        ends=ends,
        step_samples=samples,
    )


def group_rate(windows: Sequence[RankWindow]) -> float:
    """All samples of a group over the time of its slowest rank."""
    return sum(w.samples for w in windows) / max(w.seconds for w in windows)


def find_stragglers(windows: Sequence[RankWindow], tolerance: float) -> list[int]:
    if len(windows) < 2:
        return []
    middle = median([w.rate for w in windows])
    return [w.rank for w in windows if w.rate < middle * (1 - tolerance)]


def steady_state(windows: Sequence[RankWindow], tolerance: float) -> SteadyState | None:
    """Whether the slowest rank kept its rate: equal segments compared, and the trend from first to last.

    None where there is too little to compare, or no sample at all.
    """
    if not windows:
        return None
    window = max(windows, key=lambda w: w.seconds)
    count = len(window.ends)
    if count < 2 * SEGMENTS:
        return None
    rates, previous, size = [], 0.0, count / SEGMENTS
    for i in range(SEGMENTS):
        low, high = round(i * size), round((i + 1) * size)
        rates.append(sum(window.step_samples[low:high]) / max(window.ends[high - 1] - previous, 1e-9))
        previous = window.ends[high - 1]
    middle = median(rates) or fmean(rates)
    if middle == 0:
        return None
    deviation = max(abs(r - middle) for r in rates) / middle
    trend = (rates[-1] - rates[0]) / middle
    return SteadyState(
        steady=deviation <= tolerance and abs(trend) <= tolerance,
        largest_deviation=deviation,
        trend=trend,
        segments=rates,
    )


def evaluation_spans(session: MeterSession) -> list[Span]:
    """From the start to the stop of each evaluation, by the rank's monotonic clock."""
    spans, opened = [], None
    for mark in session.marks:
        if mark.event == "eval_start" and opened is None:
            opened = mark.mono
        elif mark.event == "eval_stop" and opened is not None:
            spans.append((opened, mark.mono))
            opened = None
    return spans


def _pauses(session: MeterSession, begin: float, end: float) -> list[Span]:
    """The parts of evaluations that are in the window, in order and without overlap."""
    found: list[Span] = []
    for low, high in sorted(evaluation_spans(session)):
        low, high = max(low, begin, found[-1][1] if found else begin), min(high, end)
        if high > low:
            found.append((low, high))
    return found


def _without_pauses(at: Sequence[float], begin: float, pauses: Sequence[Span]) -> Sequence[float]:
    """Each time since `begin`, less the pauses before it."""
    ends = array("d", (t - begin for t in at))
    before = (0.0, *accumulate(high - low for low, high in pauses))
    cursor = 0
    for i, (low, high) in enumerate(pauses):
        inside = bisect_right(at, low, lo=cursor)
        after = bisect_left(at, high, lo=inside)
        for k in range(inside, after):
            ends[k] -= before[i] + (at[k] - low)
        cursor = bisect_right(at, pauses[i + 1][0], lo=after) if i + 1 < len(pauses) else len(at)
        for k in range(after, cursor):
            ends[k] -= before[i + 1]
    return ends
