"""Throughput is samples over wall time between stated marks, checked against numbers done by hand."""

from __future__ import annotations

import json
from pathlib import Path

import made
import pytest

from trainshed.bench import folder as folders
from trainshed.bench.measure.evidence import read_run
from trainshed.bench.measure.measure import measure_run
from trainshed.bench.result import NotMeasured, RunResult, number

pytestmark = [pytest.mark.benchmark]


def measured(tmp_path: Path, run: made.MadeRun | None = None, **rules: object) -> RunResult:
    return measure_run(read_run((run or made.MadeRun()).write(tmp_path / "run")), made.made_rules(**rules))


def test_warm_up_and_evaluation_are_left_out(tmp_path: Path) -> None:
    # 4 ranks × 32 samples every 0.1 s, after 3 s of compilation, with evaluations of 1 s in between.
    run = measured(tmp_path)
    assert run.status == "valid", run.reasons
    assert number(run.throughput) == pytest.approx(1280.0, rel=1e-9)
    assert number(run.throughput_sum_of_ranks) == pytest.approx(1280.0, rel=1e-9)
    assert [number(n.throughput) for n in run.nodes] == pytest.approx([640.0, 640.0])
    assert [number(r.throughput) for r in run.ranks] == pytest.approx([320.0] * 4)
    assert run.window is not None
    assert (run.window.warmup_steps, run.window.steps, run.window.start) == (10, 90, "end of step 10")
    assert run.window.evaluation_seconds == pytest.approx(1.0)
    assert number(run.step_time_median) == pytest.approx(0.1, rel=0.01)


def test_without_warm_up_compilation_counts_from_the_start_mark(tmp_path: Path) -> None:
    run = measured(tmp_path, warmup_steps=0)
    assert number(run.throughput) == pytest.approx(4 * 32 * 100 / 13.0)


def test_time_to_target_counts_everything_after_the_start_mark(tmp_path: Path) -> None:
    # 3 s compilation + 10 s of steps + 2 evaluations: the second one reaches 0.75.
    run = measured(tmp_path)
    assert number(run.time_to_target) == pytest.approx(15.0)
    assert number(run.epochs_to_target) == 2 and number(run.quality) == 0.8


def test_a_slow_rank_is_named_and_sets_the_pace(tmp_path: Path) -> None:
    run = measured(tmp_path, made.MadeRun(rank_speed={2: 2.0}), synchronous=False)
    assert run.stragglers == [2] and "straggler" in {w.code for w in run.warnings}
    assert number(run.throughput) == pytest.approx(640.0)
    assert number(run.throughput_sum_of_ranks) == pytest.approx(320.0 * 3 + 160.0)


def test_single_server_mode_is_the_mean_over_nodes(tmp_path: Path) -> None:
    source = made.MadeRun(rank_speed={2: 2.0, 3: 2.0}, single_server=True).write(tmp_path / "run")
    run = measure_run(read_run(source), made.made_rules(single_server=True))
    assert run.status == "valid", run.reasons
    assert number(run.throughput) == pytest.approx((640 + 320) / 2)


def test_throughput_that_falls_off_is_not_steady(tmp_path: Path) -> None:
    source = made.MadeRun(nodes=1, per_node=1, epochs=1, eval_seconds=0, accuracies=(0.9,)).write(
        tmp_path / "run"
    )
    rules = made.made_rules(nodes=1, ranks=1)
    steady = measure_run(read_run(source), rules)
    assert steady.steady_state is not None and steady.steady_state.steady and not steady.warnings
    path = source / "node-0/meter-rank-0.jsonl"
    records = [json.loads(x) for x in path.read_text().splitlines()]
    steps = next(r for r in records if r["event"] == "steps")
    steps["at"] = [t + max(0, i - 60) * 0.05 for i, t in enumerate(steps["at"])]
    path.write_text("".join(json.dumps(x) + "\n" for x in records))
    slowing = measure_run(read_run(source), rules)
    assert slowing.steady_state is not None and slowing.steady_state.trend < -0.2
    assert "not-steady" in {w.code for w in slowing.warnings}


def test_a_missed_target_is_the_only_reason_named(tmp_path: Path) -> None:
    run = measured(tmp_path, made.MadeRun(target=0.95), target={"value": 0.95})
    assert [r.code for r in run.reasons] == ["target-not-reached"]
    assert "0.8 is not ≥ 0.95" in run.reasons[0].message
    assert isinstance(run.time_to_target, NotMeasured)


def test_a_lower_is_better_target(tmp_path: Path) -> None:
    rules = {"target": {"value": 0.72, "better": "lower"}}
    assert number(measured(tmp_path, made.MadeRun(target=0.72), **rules).time_to_target) == pytest.approx(
        3 + 5 + 1
    )


def test_energy_is_readings_times_seconds_with_source_and_coverage(tmp_path: Path) -> None:
    run = measured(tmp_path, made.MadeRun(watts=100.0, steps=800))
    average, energy = run.power.average, run.power.energy
    assert number(average) == pytest.approx(404, abs=1), average
    assert number(energy) == pytest.approx(404 * 84, rel=0.05)
    assert number(run.power.maximum) == 408
    assert not isinstance(energy, NotMeasured) and energy.unit == "J" and "NVML; every 1 s" in energy.source
    assert number(run.device_use) == 80.5


def test_too_few_power_samples_and_absent_devices_say_so(tmp_path: Path) -> None:
    few = measured(tmp_path / "a", made.MadeRun(watts=100.0)).power.energy
    assert isinstance(few, NotMeasured) and "too few" in few.not_measured
    none = measured(tmp_path / "b")
    assert isinstance(none.device_use, NotMeasured) and "no accelerator" in none.device_use.not_measured
    assert isinstance(none.power.average, NotMeasured) and "node 0, 1" in none.power.average.not_measured
    assert number(none.cpu_use) == 55.0


def test_too_long_a_preparation_off_the_clock_fails(tmp_path: Path) -> None:
    run = measured(tmp_path, max_prepare_seconds=1.0)
    assert {r.code for r in run.reasons} == {"prepare-too-long"}


def test_a_run_directory_that_is_not_there_is_a_reason_not_a_traceback(tmp_path: Path) -> None:
    run = measure_run(read_run(tmp_path / "nowhere"), made.made_rules())
    assert run.status == "failed" and run.reasons[0].code == "run-missing"


def test_in_single_server_mode_every_server_has_to_reach_the_target(tmp_path: Path) -> None:
    source = made.MadeRun(single_server=True).write(tmp_path / "run")
    rules = made.made_rules(single_server=True)
    good = measure_run(read_run(source), rules)
    assert good.status == "valid" and number(good.quality) == 0.8
    for path in source.glob("node-1/*rank*"):
        text = path.read_text().replace('"value": 0.8', '"value": 0.72')
        path.write_text(text.replace("accuracy=0.8000", "accuracy=0.7200"))
    bad = measure_run(read_run(source), rules)
    assert [r.message for r in bad.reasons] == [
        "server 1: accuracy 0.72 is not ≥ 0.75: the target was not reached"
    ]
    assert number(bad.quality) == pytest.approx(0.76)
    assert isinstance(bad.time_to_target, NotMeasured)


def test_an_emulated_run_says_so_first(tmp_path: Path) -> None:
    run = measured(tmp_path, made.MadeRun(emulated=True))
    assert run.warnings[0].code == "emulated" and "EMULATED" in run.warnings[0].message


def spoken(tmp_path: Path, *records: dict[str, object], run: made.MadeRun | None = None) -> RunResult:
    """A result of one run whose rank 0 says this too, between the last evaluation and the stop."""
    source = (run or made.MadeRun()).write(tmp_path / "source")
    path = source / "node-0/meter-rank-0.jsonl"
    lines = [json.loads(x) for x in path.read_text().splitlines()]
    clocks = {"mono": lines[-2]["mono"], "wall": lines[-2]["wall"]}
    lines[-2:-2] = [{**clocks, **record} for record in records]
    path.write_text("".join(json.dumps({**x, "seq": i}) + "\n" for i, x in enumerate(lines)))
    folder = tmp_path / "result"
    folders.begin(folder, made.made_rules(runs=1), {})
    folders.add_run(folder, source)
    return folders.collect(folder).runs[0]


def test_a_setting_that_is_infinite_is_kept_as_a_word(tmp_path: Path) -> None:
    run = spoken(tmp_path, {"event": "setting", "key": "max_grad_norm", "value": float("inf")})
    assert run.status == "valid" and run.settings["max_grad_norm"] == "inf"


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"event": "steps", "first": 100, "counts": [0], "samples": [32], "at": [1e9]}, "meter-record"),
        ({"event": "steps", "first": 100, "counts": [1], "samples": [-1], "at": [1e9]}, "meter-record"),
        ({"event": "steps", "first": 100, "counts": [1], "samples": [1e999], "at": [1e9]}, "meter-record"),
        ({"event": "steps", "first": 1e999, "counts": [1], "samples": [1], "at": [1e9]}, "meter-record"),
        ({"event": "loss", "value": 1.0, "wall": float("nan")}, "meter-record"),
        ({"event": "quality", "name": "accuracy", "value": 0.9, "epoch": "3/10"}, "meter-record"),
        ({"event": "quality", "name": "accuracy", "value": float("nan"), "epoch": 3}, "not-finite"),
        ({"event": "loss", "value": 10**400}, "not-finite"),
    ],
)
def test_numbers_that_nothing_can_be_calculated_with_are_reasons_not_tracebacks(
    tmp_path: Path, record: dict[str, object], code: str
) -> None:
    run = spoken(tmp_path, record)
    assert run.status == "failed" and code in {r.code for r in run.reasons}, run.reasons


def test_ranks_that_count_no_samples_are_measured_as_such(tmp_path: Path) -> None:
    run = spoken(tmp_path, run=made.MadeRun(batch=0))
    assert number(run.throughput) == 0 and run.steady_state is None and run.stragglers == []


def test_totals_of_fractions_are_compared_as_numbers_are(tmp_path: Path) -> None:
    run = measured(tmp_path, made.MadeRun(batch=0.1))  # type: ignore[arg-type]
    assert run.status == "valid", run.reasons


def test_a_step_right_before_and_right_after_evaluation_is_none_within(tmp_path: Path) -> None:
    source = made.MadeRun(eval_seconds=0.01).write(tmp_path / "run")
    assert measure_run(read_run(source), made.made_rules()).status == "valid"


def test_without_a_meter_a_run_lasts_from_when_its_ranks_ran(tmp_path: Path) -> None:
    source = made.MadeRun().write(tmp_path / "run")
    for path in source.glob("node-*/meter*"):
        path.unlink()
    run = measure_run(read_run(source), made.made_rules())
    assert run.started == made.WALL
