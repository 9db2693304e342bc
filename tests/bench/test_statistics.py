"""Statistics agree with printed tables and with scipy's published values."""

from __future__ import annotations

import math

import pytest

from trainshed.bench.measure import statistics as st

pytestmark = [pytest.mark.benchmark]

# Student's t table as printed in textbooks: (p, df, t).
TABLE = [
    (0.95, 1, 6.314), (0.95, 2, 2.920), (0.95, 5, 2.015), (0.95, 9, 1.833), (0.95, 30, 1.697),
    (0.975, 1, 12.706), (0.975, 3, 3.182), (0.975, 4, 2.776), (0.975, 10, 2.228), (0.975, 120, 1.980),
    (0.99, 2, 6.965), (0.99, 20, 2.528), (0.995, 1, 63.657), (0.995, 7, 3.499), (0.9995, 5, 6.869),
]  # fmt: skip


@pytest.mark.parametrize(("p", "df", "t"), TABLE)
def test_quantile_agrees_with_the_printed_table(p: float, df: int, t: float) -> None:
    assert round(st.t_quantile(p, df), 3) == t


@pytest.mark.parametrize("df", [1, 2.5, 7, 40, 1000])
@pytest.mark.parametrize("p", [0.001, 0.05, 0.3, 0.5, 0.8, 0.999])
def test_quantile_and_distribution_are_inverse(p: float, df: float) -> None:
    assert math.isclose(st.t_cdf(st.t_quantile(p, df), df), p, abs_tol=1e-10)


def test_distribution_agrees_with_scipy_where_it_is_installed() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    for df in (1, 3, 4.7, 12, 200):
        for t in (-8, -1.2, 0, 0.4, 2.5, 30):
            assert math.isclose(st.t_cdf(t, df), scipy_stats.t.cdf(t, df), rel_tol=1e-9, abs_tol=1e-12)


def test_olympic_mean_drops_one_smallest_and_one_largest() -> None:
    assert st.olympic_mean([10, 1, 5, 6, 100]) == 7
    assert st.olympic_mean([4, 6]) == 5


def test_interval_of_one_value_is_not_made_up() -> None:
    assert st.mean_interval([5.0]) is None
    interval = st.mean_interval([9.0, 10.0, 11.0])
    assert interval is not None
    assert math.isclose(interval.high - 10, 4.302652730 / math.sqrt(3), rel_tol=1e-8)


def test_welch_finds_a_difference_and_does_not_invent_one() -> None:
    far = st.welch([100, 101, 99], [120, 121, 119])
    assert far is not None and far.p < 0.001 and far.interval.low > 0
    near = st.welch([100, 110, 90], [101, 111, 91])
    assert near is not None and near.p > 0.8 and near.interval.low < 0 < near.interval.high
    assert st.welch([1.0], [2.0, 3.0]) is None
