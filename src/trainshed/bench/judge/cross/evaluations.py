"""Rules about quality: its range, its evaluations, and what the logs say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainshed.bench.judge.cross import Case, rule
from trainshed.bench.judge.faults import is_finite
from trainshed.bench.measure.ingest import MLLOG, log_lines, mllog_line
from trainshed.bench.measure.meter_file import Mark, MeterSession
from trainshed.bench.measure.reading import reading
from trainshed.bench.measure.window import evaluation_spans

# Evaluating needs no gradients: it may be much faster than training, but not without end.
MOST_TIMES_FASTER = 200.0
MOST_TIMES_SLOWER = 20.0
# Compiling, loading and gathering may make any evaluation longer.
EVALUATION_OVERHEAD = 60.0


@rule("quality-range")
def quality_in_range(case: Case) -> Iterator[str]:
    """A quality is in the range that its name or the rules give it."""
    target = case.rules.target
    if target is None:
        return
    low, high = target.range
    for rank, session in case.sessions:
        for mark in _qualities(session, target.name):
            value = mark.fields.get("value")
            if is_finite(value) and not low <= value <= high:
                yield f"rank {rank.rank}: {target.name} {value:g} is not between {low:g} and {high:g}"


@rule("quality-unevaluated")
def each_quality_evaluated(case: Case) -> Iterator[str]:
    """Where evaluations are marked, each quality has its own evaluation before it or around it."""
    name = case.rules.target.name if case.rules.target else "accuracy"
    for rank, session in case.sessions:
        starts = [m.mono for m in session.marks if m.event == "eval_start"]
        if not starts:
            continue
        index = 0
        for mark in _qualities(session, name):
            before = index
            while index < len(starts) and starts[index] <= mark.mono:
                index += 1
            if index == before:
                yield f"rank {rank.rank} recorded {name} at {mark.mono - session.mono[0]:.1f} s without an evaluation"
                break


@rule("evaluation-unreported")
def each_evaluation_reported(case: Case) -> Iterator[str]:
    """Of a rank that records qualities, each evaluation gives one: none is left out that was not good enough."""
    name = case.rules.target.name if case.rules.target else "accuracy"
    for rank, session in case.sessions:
        spans, qualities = evaluation_spans(session), _qualities(session, name)
        if qualities and len(spans) > len(qualities):
            yield f"rank {rank.rank} evaluated {len(spans)} times and recorded {name} {len(qualities)} times"


@rule("evaluation-too-short")
def evaluations_long_enough(case: Case) -> Iterator[str]:
    """An evaluation takes as long as its data need at the pace of training, allowed to be much faster."""
    for rank, span, needed in _evaluation_needs(case):
        if span < needed / MOST_TIMES_FASTER:
            yield f"rank {rank} evaluated in {span:.6f} s what takes {needed:.3f} s at the pace of training"


@rule("evaluation-too-long")
def evaluations_short_enough(case: Case) -> Iterator[str]:
    """An evaluation, the time of which is not counted, does not take far longer than its data need."""
    for rank, span, needed in _evaluation_needs(case):
        ranks = max(1, len(case.metered))
        if span > EVALUATION_OVERHEAD + MOST_TIMES_SLOWER * needed * ranks:
            yield f"rank {rank} evaluated for {span:.1f} s what takes {needed:.3f} s at the pace of training"


@rule("quality-not-in-log")
def quality_of_logs(case: Case) -> Iterator[str]:
    """Where logs contain a quality (the rules name a log pattern, or MLLOG), each that the lowest rank recorded was printed."""
    pattern, target = case.rules.log_patterns.get("quality"), case.rules.target
    logged = list(_logged(case, re.compile(pattern) if pattern else None))
    if not logged and not pattern:
        return
    name = target.name if target else "accuracy"
    for rank, session in list(case.sessions)[:1]:
        for mark in _qualities(session, name):
            value = mark.fields.get("value")
            if is_finite(value) and not any(_same(float(value), text) for text in logged):
                yield f"rank {rank.rank} recorded {name} {value:g}, its logs show {', '.join(logged[-5:]) or 'none'}"


@rule("quality-before-steps")
def quality_needs_steps(case: Case) -> Iterator[str]:
    """A quality is recorded after steps were done since the start, not before any."""
    name = case.rules.target.name if case.rules.target else "accuracy"
    for rank, session in case.sessions:
        target = case.rules.target
        for mark in _qualities(session, name)[:1]:
            value = mark.fields.get("value")
            reached = target is not None and is_finite(value) and target.reached(float(value))
            if reached and session.at and mark.mono < session.at[0]:
                yield f"rank {rank.rank} reached {name} {value} before its first step"


def _qualities(session: MeterSession, name: str) -> list[Mark]:
    return [
        m for m in session.marks if m.event == "quality" and str(m.fields.get("name", "accuracy")) == name
    ]


def _evaluation_needs(case: Case) -> Iterator[tuple[int, float, float]]:
    """(rank, seconds of an evaluation, seconds that its part of the data takes in training)."""
    dataset = case.rules.dataset
    ranks = max(1, case.rules.ranks_per_node if case.rules.single_server else case.rules.ranks)
    for rank, session in case.sessions:
        stated = [reading(m.fields.get("eval_samples")) for m in session.all("dataset")]
        size = (
            dataset.eval_samples
            if dataset and dataset.eval_samples is not None
            else stated[0]
            if stated
            else None
        )
        spans = evaluation_spans(session)
        trained = sum(session.samples)
        if not size or not spans or len(session.at) < 2 or not trained:
            continue
        inside = sum(b - a for a, b in spans if session.at[0] <= a and b <= session.at[-1])
        seconds = max(session.at[-1] - session.at[0] - inside, 0.0)
        for low, high in spans:
            yield rank.rank, high - low, size / ranks * seconds / trained


def _logged(case: Case, pattern: re.Pattern[str] | None) -> Iterator[str]:
    """Every quality in a log, as it is printed."""
    for rank in case.evidence.ranks.values():
        for line in log_lines(rank.log) if rank.log else ():
            if (
                MLLOG in line
                and (record := mllog_line(line)) is not None
                and record["key"] == "eval_accuracy"
            ):
                yield str(record.get("value"))
            elif pattern is not None and (match := pattern.search(line)) and match.group(1) is not None:
                yield match.group(1)


def _same(value: float, text: str) -> bool:
    """Whether a number may have been printed as this text, by its digits."""
    try:
        shown = float(text)
    except ValueError:
        return False
    digits = len(text.partition(".")[2]) if "." in text and "e" not in text.lower() else 0
    return abs(shown - value) <= (0.5000001 * 10.0**-digits if digits else max(1e-9, abs(value) * 1e-6))
