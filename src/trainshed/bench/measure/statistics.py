"""Small exact statistics: Student's t without scipy, olympic mean, intervals, Welch.

Knows numbers only, nothing of runs or benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


def t_cdf(t: float, df: float) -> float:
    """P(T ≤ t) of Student's t with `df` degrees of freedom (`df` need not be whole)."""
    if df <= 0:
        raise ValueError(f"degrees of freedom must be positive, not {df}")
    tail = 0.5 * incomplete_beta(df / (df + t * t), df / 2, 0.5)
    return 1 - tail if t > 0 else tail


def t_quantile(p: float, df: float) -> float:
    """The t with P(T ≤ t) = p, by bisection on the distribution function."""
    if not 0 < p < 1:
        raise ValueError(f"a quantile needs 0 < p < 1, not {p}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p and high < 1e12:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if t_cdf(middle, df) < p:
            low = middle
        else:
            high = middle
        if high - low <= 1e-13 * max(1.0, high):
            break
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The continued fraction converges fast only on the near side of the mean.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated by Lentz's method."""
    tiny = 1e-300
    numerator, denominator = 1.0, 1 - (a + b) * x / (a + 1)
    denominator = 1 / (denominator if abs(denominator) > tiny else tiny)
    value = denominator
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1 + term * denominator
            denominator = 1 / (denominator if abs(denominator) > tiny else tiny)
            numerator = 1 + term / numerator
            numerator = numerator if abs(numerator) > tiny else tiny
            value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return value


def olympic(values: Sequence[float]) -> list[float]:
    """The values without one smallest and one largest; fewer than three are left as they are."""
    ordered = sorted(values)
    return ordered[1:-1] if len(ordered) >= 3 else ordered


def olympic_mean(values: Sequence[float]) -> float:
    return fmean(olympic(values))


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between the closest ranks."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The confidence interval of the mean, or None when one value says nothing about spread."""
    if len(values) < 2:
        return None
    half = t_quantile((1 + confidence) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    centre = fmean(values)
    return Interval(centre - half, centre + half)


@dataclass(frozen=True)
class Welch:
    """The difference of two means (b − a), its interval and the two-sided p."""

    difference: float
    interval: Interval
    p: float


def welch(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Welch | None:
    """Welch's test; None when either side has fewer than two values."""
    if len(a) < 2 or len(b) < 2:
        return None
    difference = fmean(b) - fmean(a)
    va, vb = stdev(a) ** 2 / len(a), stdev(b) ** 2 / len(b)
    error = math.sqrt(va + vb)
    if error == 0:
        return Welch(difference, Interval(difference, difference), 1.0 if difference == 0 else 0.0)
    df = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = t_quantile((1 + confidence) / 2, df) * error
    p = 2 * (1 - t_cdf(abs(difference) / error, df))
    return Welch(difference, Interval(difference - half, difference + half), p)
