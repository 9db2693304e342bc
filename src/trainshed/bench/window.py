"""The measured window of a rank and what follows from it: rates, stragglers, steadiness.

It starts where the last warm-up step ended, ends where the last step ended, and
leaves out evaluation. Times are of the rank's own monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from trainshed.bench.evidence import MeterSession, RankEvidence
from trainshed.bench.result import SteadyState
from trainshed.bench.rules import Rules
from trainshed.bench.statistics import median

SEGMENTS = 5


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
    step_times: tuple[float, ...]
    marks: tuple[tuple[float, float], ...]
    """(end of step without evaluation time, samples), for the steady-state check."""

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
    while first < len(session.steps) and done < warmup:
        done += session.steps[first].count
        first += 1
    start_mark = session.first("start")
    if first == 0 and start_mark is None:
        return None
    begin = session.steps[first - 1].mono if first else start_mark.mono if start_mark else 0.0
    measured = session.steps[first:]
    if not measured:
        return None
    end = measured[-1].mono
    pauses = _evaluation_pauses(session, begin, end)
    paused = sum(b - a for a, b in pauses)
    seconds = end - begin - paused
    if seconds <= 0:
        return None
    times, marks, previous = [], [], begin
    for step in measured:
        spent = step.mono - previous - _overlap(pauses, previous, step.mono)
        times.append(spent / step.count)
        marks.append((step.mono - begin - _overlap(pauses, begin, step.mono), step.samples))
        previous = step.mono
    return RankWindow(
        rank=rank.rank,
        node=rank.node,
        steps=sum(s.count for s in measured),
        samples=sum(s.samples for s in measured),
        seconds=seconds,
        evaluation_seconds=paused,
        start=session.wall_of(begin),
        end=session.wall_of(end),
        warmup=done,
        step_times=tuple(times),
        marks=tuple(marks),
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
    if len(window.marks) < 2 * SEGMENTS:
        return None
    rates, previous, size = [], 0.0, len(window.marks) / SEGMENTS
    for i in range(SEGMENTS):
        part = window.marks[round(i * size) : round((i + 1) * size)]
        rates.append(sum(s for _, s in part) / max(part[-1][0] - previous, 1e-9))
        previous = part[-1][0]
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


def evaluation_spans(session: MeterSession) -> list[tuple[float, float]]:
    """From the start to the stop of each evaluation, by the rank's monotonic clock."""
    spans, opened = [], None
    for mark in session.marks:
        if mark.event == "eval_start" and opened is None:
            opened = mark.mono
        elif mark.event == "eval_stop" and opened is not None:
            spans.append((opened, mark.mono))
            opened = None
    return spans


def _evaluation_pauses(session: MeterSession, begin: float, end: float) -> list[tuple[float, float]]:
    within = [(max(low, begin), min(high, end)) for low, high in evaluation_spans(session)]
    return [(low, high) for low, high in within if high > low]


def _overlap(pauses: list[tuple[float, float]], low: float, high: float) -> float:
    return sum(max(0.0, min(b, high) - max(a, low)) for a, b in pauses)
