"""Scores: olympic mean, missed targets, windows of runs, reference convergence points."""

from __future__ import annotations

from pathlib import Path

import made
import pytest

from trainshed.bench.folder import load_result
from trainshed.bench.history import compare, entry_of
from trainshed.bench.judge import convergence
from trainshed.bench.judge.check import check
from trainshed.bench.judge.rules import ReferencePoint
from trainshed.bench.judge.score import choose_window, window_score
from trainshed.bench.result import Measured, NotMeasured, Result, number

pytestmark = [pytest.mark.benchmark]

EXAMPLE = [16, 14, 16, 17, 16, 16, 15, 16, 15, 16]


def test_the_worked_example_of_reference_convergence_points_comes_out_exactly() -> None:
    reference = convergence.reference(ReferencePoint(batch_size=4096, epochs=EXAMPLE))
    assert round(reference.mean, 2) == 15.75
    assert round(reference.deviation, 2) == 0.43
    assert round(reference.lowest_mean(submitted_runs=5), 2) == 15.21


def test_references_are_interpolated_between_batch_sizes_and_never_extrapolated_upwards() -> None:
    points = [ReferencePoint(batch_size=b, epochs=[e] * 10) for b, e in ((100, 10.0), (200, 20.0))]
    middle = convergence.reference_at(points, 150)
    assert middle is not None and middle.mean == 15.0
    assert convergence.reference_at(points, 201) is None
    below = convergence.reference_at(points, 50)
    assert below is not None and below.mean == 10.0


@pytest.mark.parametrize(("epochs", "allowed"), [([15.3] * 5, True), ([15.1] * 5, False), ([16] * 5, True)])
def test_converging_faster_than_the_reference_could_is_refused(epochs: list[float], allowed: bool) -> None:
    points = [ReferencePoint(batch_size=4096, epochs=EXAMPLE)]
    assert convergence.judge_convergence(points, 4096, epochs).allowed is allowed


def test_a_reference_needs_twice_as_many_runs() -> None:
    verdict = convergence.judge_convergence([ReferencePoint(batch_size=1, epochs=EXAMPLE)], 1, [16] * 6)
    assert not verdict.allowed and "10 reference runs, 12 are needed" in verdict.message


def test_one_missed_target_counts_as_the_slowest_and_two_do_not_score() -> None:
    assert window_score([10.0, None, 20.0, 30.0], higher_is_better=False) == 25.0
    assert window_score([10.0, None, 20.0, 30.0], higher_is_better=True) == 15.0
    assert window_score([10.0, None, None, 30.0], higher_is_better=False) is None
    assert window_score([10.0, None], higher_is_better=False) is None


def test_of_more_runs_the_window_with_the_median_score_counts() -> None:
    window = choose_window([1.0, 1.0, 1.0, 5.0, 5.0, 9.0, 9.0], 3, higher_is_better=False)
    # windows score 1, 1, 5, 5, 9: the median is 5 and the first such window starts at run 3
    assert window is not None and window.score == 5.0 and window.first == 2
    even = choose_window([1.0, 1.0, 1.0, 7.0], 3, higher_is_better=False)
    assert even is not None and even.score == 1.0
    worse = choose_window([1.0, 2.0, 3.0, 4.0], 3, higher_is_better=False)
    assert worse is not None and worse.score == 3.0
    assert choose_window([1.0], 3, higher_is_better=False) is None


def runs(count: int, **changes: object) -> list[made.MadeRun]:
    return [made.MadeRun(seed=i, step=0.1 + i / 1000, **changes) for i in range(1, count + 1)]  # type: ignore[arg-type]


def test_three_runs_give_olympic_mean_spread_and_interval(tmp_path: Path) -> None:
    result = check(made.made_result(tmp_path)).result
    assert result is not None and result.status == "valid"
    rates = [128 / (0.1 + i / 1000) for i in (1, 2, 3)]
    assert number(result.score.value) == pytest.approx(rates[1])
    assert number(result.score.spread) == pytest.approx((rates[0] - rates[2]) / (sum(rates) / 3))
    low, high = number(result.score.confidence_low), number(result.score.confidence_high)
    assert low is not None and high is not None and low < rates[1] < high


def test_one_run_that_missed_the_target_is_allowed_two_are_not(tmp_path: Path) -> None:
    good, bad = runs(5), (0.5, 0.6)
    good[2].accuracies = bad
    checked = check(made.made_result(tmp_path / "one", made.made_rules(runs=5), good))
    one = checked.result
    assert one is not None and one.status == "valid" and one.score.runs_not_converged == [3]
    assert checked.findings == []
    more = runs(5)
    more[2].accuracies = more[4].accuracies = bad
    two = check(made.made_result(tmp_path / "two", made.made_rules(runs=5), more)).result
    assert two is not None and two.status == "failed"
    assert [r.code for r in two.reasons] == ["runs-not-converged"]


def test_one_run_alone_has_no_spread(tmp_path: Path) -> None:
    result = check(made.made_result(tmp_path, made.made_rules(runs=1), runs(1))).result
    assert result is not None and result.status == "valid"
    assert isinstance(result.score.spread, NotMeasured)


def test_a_result_that_converges_too_fast_fails(tmp_path: Path) -> None:
    points = [ReferencePoint(batch_size=128, epochs=[8.0, 9.0, 8.0, 9.0, 8.0, 9.0])]
    result = check(made.made_result(tmp_path, made.made_rules(reference_points=points))).result
    assert result is not None and [r.code for r in result.reasons] == ["converges-too-fast"]


def test_time_to_target_can_be_the_score(tmp_path: Path) -> None:
    result = check(made.made_result(tmp_path, made.made_rules(score="time_to_target"))).result
    assert result is not None and isinstance(result.score.value, Measured)
    assert result.score.value.unit == "s" and result.score.value.value == pytest.approx(15.2)


def with_a_miss(tmp_path: Path, count: int, **rules: object) -> Result:
    """`count` runs, the second of which missed the target; fewer epochs than two reach it."""
    every = runs(count)
    every[1].accuracies = (0.5, 0.6)
    result = check(made.made_result(tmp_path, made.made_rules(runs=count, **rules), every)).result
    assert result is not None and result.score.runs_not_converged == [2]
    return result


def test_around_a_missed_run_every_figure_says_which_runs_it_is_of(tmp_path: Path) -> None:
    score = with_a_miss(tmp_path, 3).score
    value, mean, spread = score.value, score.mean, score.spread
    assert isinstance(value, Measured) and isinstance(mean, Measured) and isinstance(spread, Measured)
    assert value.source == "olympic mean of 3 runs, run 2 counting as the slowest"
    assert mean.source == "mean of 2 of 3 runs" and spread.source == "(max − min)/mean of 2 of 3 runs"


def test_a_missed_run_is_the_slowest_before_the_reference_too(tmp_path: Path) -> None:
    # Without the miss as slowest, one of the four runs that needed 2 epochs would be dropped for it.
    points = [ReferencePoint(batch_size=128, epochs=[2.0, 2.0, 2.0, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0])]
    result = with_a_miss(tmp_path, 5, reference_points=points)
    expected = convergence.reference(points[0]).lowest_mean(submitted_runs=5)
    assert result.score.convergence.endswith(f"lowest allowed {expected:.2f}"), result.score.convergence
    few = with_a_miss(
        tmp_path / "few", 5, reference_points=[ReferencePoint(batch_size=128, epochs=[2.0] * 8)]
    )
    assert "8 reference runs, 10 are needed" in few.score.convergence


def test_history_leaves_out_the_run_that_the_score_left_out(tmp_path: Path) -> None:
    result = with_a_miss(tmp_path, 3)
    rates = [number(r.throughput) for r in result.runs]
    assert list(entry_of(result, tmp_path).runs) == [rates[0], rates[2]]


def test_runs_without_a_sample_have_a_score_of_zero_and_no_spread(tmp_path: Path) -> None:
    folder = made.made_result(tmp_path, runs=runs(3, batch=0))
    result = load_result(folder)
    assert number(result.score.value) == 0 and isinstance(result.score.spread, NotMeasured)
    entry = entry_of(result, folder)
    assert "zero" in compare(entry, entry).sentence


def test_scaling_names_the_result_it_is_measured_against(tmp_path: Path) -> None:
    base = Measured(value=320.0, unit="images/s", source="result made-one")
    result = load_result(made.made_result(tmp_path / "a", one_device=base))
    efficiency, score = result.scaling_efficiency, number(result.score.value)
    assert isinstance(efficiency, Measured) and score is not None
    assert efficiency.value == pytest.approx(score / (4 * 320))
    assert efficiency.source == "4 ranks against 320 images/s of one device, given by result made-one"
    other = base.model_copy(update={"unit": "sequences/s"})
    none = load_result(made.made_result(tmp_path / "b", one_device=other)).scaling_efficiency
    assert isinstance(none, NotMeasured) and "sequences/s" in none.not_measured
