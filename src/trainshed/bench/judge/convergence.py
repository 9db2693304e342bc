"""Reference convergence points: a run that converges faster than the reference could is not the same work.

The lowest mean of epochs that may be submitted follows from a one-sided t-test
at p = 0.05 between the reference runs and the submission, both without their
fastest and slowest run. Between batch sizes, mean and deviation are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev

from trainshed.bench.judge.rules import ReferencePoint
from trainshed.bench.measure.statistics import olympic, olympic_mean, t_quantile

P = 0.05


@dataclass(frozen=True)
class Reference:
    """A reference at one batch size: olympic mean, deviation and how many runs are behind it."""

    batch_size: float
    mean: float
    deviation: float
    runs: int

    def lowest_mean(self, submitted_runs: int) -> float:
        """The lowest olympic mean that `submitted_runs` runs may have."""
        counted = max(1, submitted_runs - 2) if submitted_runs >= 3 else submitted_runs
        freedom = self.runs + counted - 2
        if self.deviation == 0 or freedom < 1:
            return self.mean
        t = t_quantile(1 - P, freedom)
        return self.mean - t * self.deviation * math.sqrt(1 / self.runs + 1 / counted)


@dataclass(frozen=True)
class Verdict:
    allowed: bool
    message: str


def reference(point: ReferencePoint) -> Reference:
    kept = olympic(point.epochs)
    return Reference(point.batch_size, fmean(kept), pstdev(kept), len(kept))


def reference_at(points: Sequence[ReferencePoint], batch_size: float) -> Reference | None:
    """The reference for a batch size, interpolated between neighbours; None above the largest point.

    Below the smallest point the smallest counts: smaller batches never need more epochs.
    """
    known = sorted((reference(p) for p in points), key=lambda r: r.batch_size)
    if not known or batch_size > known[-1].batch_size:
        return None
    if batch_size <= known[0].batch_size:
        return known[0]
    for low, high in pairwise(known):
        if batch_size <= high.batch_size:
            share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
            if share == 1:
                return high
            mean = low.mean + share * (high.mean - low.mean)
            deviation = low.deviation + share * (high.deviation - low.deviation)
            return Reference(batch_size, mean, deviation, min(low.runs, high.runs))
    return None


def judge_convergence(
    points: Sequence[ReferencePoint], batch_size: float, epochs: Sequence[float]
) -> Verdict:
    """Whether runs that needed `epochs` epochs each may be submitted; inf is a run that missed the target."""
    few = [p for p in points if len(p.epochs) < 2 * len(epochs)]
    if few:
        have, need = len(few[0].epochs), 2 * len(epochs)
        text = f"batch size {few[0].batch_size:g} has {have} reference runs, {need} are needed"
        return Verdict(False, text)
    found = reference_at(points, batch_size)
    if found is None:
        return Verdict(
            False, f"there is no reference convergence point for batch size {batch_size:g} or more"
        )
    mean, lowest = olympic_mean(epochs), found.lowest_mean(len(epochs))
    text = f"olympic mean {mean:.2f} epochs, reference {found.mean:.2f}, lowest allowed {lowest:.2f}"
    return Verdict(mean >= lowest, text)
