"""From measured runs to one score with its spread.

N runs, the fastest and the slowest dropped, the mean of the rest. At most one
run may miss the target; it counts as the slowest. Of more than N runs, the
window of N consecutive runs with the median score counts (with an even number
of windows the worse of the two in the middle), so runs cannot be picked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from trainshed.bench.judge.convergence import judge_convergence
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.statistics import mean_interval, olympic_mean
from trainshed.bench.result import Measured, NotMeasured, Quantity, Reason, RunResult, Score, number
from trainshed.plural import counted

NOT_CONVERGED = "target-not-reached"


@dataclass(frozen=True)
class Windowed:
    """The runs that count: their values, a missing one (None) being the slowest."""

    first: int
    values: tuple[float | None, ...]
    score: float


def score_runs(rules: Rules, runs: Sequence[RunResult]) -> tuple[Score, list[Reason]]:
    """The score of all runs, and the reasons why it may not be used."""
    reasons = list(_run_reasons(rules, runs))
    values = [_value(rules, run) for run in runs]
    not_converged = [run.index for run in runs if _only_missed(run)]
    unit = rules.unit if rules.score == "throughput" else "s"
    window = choose_window(values, rules.runs, higher_is_better=rules.score == "throughput")
    if window is None:
        why = f"{sum(v is not None for v in values)} usable runs, {rules.runs} are needed"
        if not any(r.code in {"runs-missing", "runs-not-converged", "run-failed"} for r in reasons):
            reasons.append(Reason(code="runs-missing", message=why))
        missing = NotMeasured(not_measured=why)
        empty = Score(
            metric=rules.score, value=missing, mean=missing, standard_deviation=missing, spread=missing,
            confidence_low=missing, confidence_high=missing, runs_not_converged=not_converged,
            quality=_quality(runs),
        )  # fmt: skip
        return empty, reasons
    counted = [runs[window.first + i] for i in range(len(window.values))]
    known = [v for v in window.values if v is not None]
    convergence, fault = _convergence(rules, counted)
    reasons += fault
    missed = [run.index for run, value in zip(counted, window.values, strict=True) if value is None]
    source = f"{len(counted)} runs" if len(counted) > 1 else "one run"
    if len(counted) > 2:
        source = f"olympic mean of {source}" + "".join(f", run {i} counting as the slowest" for i in missed)
    score = Score(
        metric=rules.score,
        value=Measured(value=window.score, unit=unit, source=source),
        **_spread(known, unit, f"{len(known)} of {len(counted)} runs" if missed else f"{len(known)} runs"),
        runs_counted=[r.index for r in counted],
        runs_not_converged=not_converged,
        quality=_quality(counted),
        convergence=convergence,
    )
    return score, reasons


def instability(rules: Rules, score: Score) -> list[Reason]:
    """Why the runs of a result are too different for their score to mean much, or nothing."""
    found = []
    spread, mean = number(score.spread), number(score.mean)
    if spread is not None and spread > rules.max_spread:
        text = f"the runs spread over {spread:.0%} of their mean, the rules allow {rules.max_spread:.0%}"
        found.append(Reason(code="unstable", message=text))
    high = number(score.confidence_high)
    if high is not None and mean and (half := (high - mean) / mean) > rules.max_interval:
        text = f"the 95% interval is the mean ± {half:.0%}, the rules allow ± {rules.max_interval:.0%}"
        found.append(Reason(code="unstable", message=text))
    return found


def _spread(known: Sequence[float], unit: str, runs: str) -> dict[str, Quantity]:
    """Mean, deviation, spread and interval of the runs that have a value."""
    mean, interval = fmean(known), mean_interval(known)
    if interval is None:
        lonely = NotMeasured(not_measured="one run says nothing about spread")
        names = ("standard_deviation", "spread", "confidence_low", "confidence_high")
        one = Measured(value=mean, unit=unit, source="mean of one run")
        return {"mean": one, **dict.fromkeys(names, lonely)}
    low, high = max(0.0, interval.low), interval.high
    of_mean = f"95% interval of the mean of {runs}"
    spread: Quantity = NotMeasured(not_measured="the mean of all runs is zero")
    if mean:
        spread = Measured(
            value=(max(known) - min(known)) / mean, unit="1", source=f"(max − min)/mean of {runs}"
        )
    return {
        "mean": Measured(value=mean, unit=unit, source=f"mean of {runs}"),
        "standard_deviation": Measured(value=stdev(known), unit=unit, source=runs),
        "spread": spread,
        "confidence_low": Measured(value=low, unit=unit, source=of_mean),
        "confidence_high": Measured(value=high, unit=unit, source=of_mean),
    }


def choose_window(values: Sequence[float | None], n: int, higher_is_better: bool) -> Windowed | None:
    """The window of `n` consecutive runs with the median score, or None when no window can be scored."""
    scored: list[Windowed] = []
    for first in range(len(values) - n + 1):
        part = tuple(values[first : first + n])
        value = window_score(part, higher_is_better)
        if value is not None:
            scored.append(Windowed(first, part, value))
    if not scored:
        return None
    worst_last = sorted(scored, key=lambda w: -w.score if higher_is_better else w.score)
    return worst_last[len(worst_last) // 2]


def window_score(values: Sequence[float | None], higher_is_better: bool) -> float | None:
    """The olympic mean; one missing value is the slowest run and is dropped as such."""
    slowest = -math.inf if higher_is_better else math.inf
    missing = sum(v is None for v in values)
    if missing > 1 or (missing and len(values) < 3):
        return None
    return olympic_mean([slowest if v is None else v for v in values])


def scaling_efficiency(rules: Rules, score: Score, one_device: Quantity | None) -> Quantity:
    """Throughput against that of one device times the number of devices.

    The one device's figure is of another result, which is named; it cannot be measured again here.
    """
    value = number(score.value)
    if rules.score != "throughput":
        return NotMeasured(not_measured="the score is a time, not a throughput")
    if not isinstance(one_device, Measured) or one_device.value <= 0:
        return NotMeasured(not_measured="no result of one device was given to compare with")
    if one_device.unit != rules.unit:
        text = f"the result of one device is in {one_device.unit}, this one in {rules.unit}"
        return NotMeasured(not_measured=text)
    if value is None:
        return NotMeasured(not_measured="there is no throughput to compare")
    base = f"{one_device.value:g} {one_device.unit} of one device, given by {one_device.source}"
    return Measured(
        value=value / (one_device.value * rules.ranks),
        unit="1",
        source=f"{rules.ranks} ranks against {base}",
    )


def _run_reasons(rules: Rules, runs: Sequence[RunResult]) -> list[Reason]:
    found = []
    if len(runs) < rules.runs:
        text = f"the result holds {counted(len(runs), 'run')}, the rules ask for {rules.runs}"
        found.append(Reason(code="runs-missing", message=text))
    broken = [r for r in runs if r.status == "failed" and not _only_missed(r)]
    for run in broken:
        why = next(x for x in run.reasons if x.code != NOT_CONVERGED)
        found.append(Reason(code="run-failed", message=f"run {run.index}: {why.message}"))
    missed = [r.index for r in runs if _only_missed(r)]
    allowed = 1 if rules.runs >= 3 else 0
    if len(missed) > allowed:
        names = ", ".join(map(str, missed))
        text = f"run {names} did not reach the target, {allowed} may miss it"
        found.append(Reason(code="runs-not-converged", message=text))
    found += _seed_reasons(runs)
    ids = [r.run_id for r in runs]
    if len(set(ids)) < len(ids):
        found.append(Reason(code="run-twice", message="one run is counted twice: " + ", ".join(sorted(ids))))
    return found


def _seed_reasons(runs: Sequence[RunResult]) -> list[Reason]:
    if len(runs) < 2:
        return []
    unknown = [r.index for r in runs if r.seed is None]
    if unknown:
        names = ", ".join(map(str, unknown))
        return [
            Reason(
                code="seed-missing",
                message=f"run {names} recorded no seed and was passed none; runs need different seeds",
            )
        ]
    seen: dict[int, int] = {}
    found = []
    for run in runs:
        assert run.seed is not None
        if run.seed in seen:
            text = f"runs {seen[run.seed]} and {run.index} have the same seed {run.seed}"
            found.append(Reason(code="seed-duplicate", message=text))
        seen.setdefault(run.seed, run.index)
    return found


def _convergence(rules: Rules, runs: Sequence[RunResult]) -> tuple[str, list[Reason]]:
    if not rules.reference_points:
        return "", []
    # A run that missed the target is the slowest, and dropped as such.
    epochs = [math.inf if _only_missed(r) else number(r.epochs_to_target) for r in runs]
    known = [e for e in epochs if e is not None]
    batch = next((r.settings.get("global_batch_size") for r in runs), None)
    if len(known) < len(epochs) or not isinstance(batch, int | float):
        text = "the reference convergence points need epochs to target and the setting global_batch_size"
        return text, [Reason(code="convergence-unknown", message=text)]
    verdict = judge_convergence(rules.reference_points, float(batch), known)
    fault = [] if verdict.allowed else [Reason(code="converges-too-fast", message=verdict.message)]
    return verdict.message, fault


def _value(rules: Rules, run: RunResult) -> float | None:
    if run.status == "failed":
        return None
    return number(run.throughput if rules.score == "throughput" else run.time_to_target)


def _only_missed(run: RunResult) -> bool:
    return bool(run.reasons) and all(r.code == NOT_CONVERGED for r in run.reasons)


def _quality(runs: Sequence[RunResult]) -> Quantity:
    values = [v for r in runs if (v := number(r.quality)) is not None]
    if not values:
        return NotMeasured(not_measured="no run measured a quality")
    return Measured(value=fmean(values), unit="1", source=f"mean of {len(values)} runs")
