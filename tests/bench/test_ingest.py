"""What scripts wrote for other tools is read, and what is broken is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import made
import pytest

from trainshed.bench.evidence import read_run
from trainshed.bench.ingest import ingest, mllog_line
from trainshed.bench.measure import measure_run
from trainshed.bench.result import number
from trainshed.contracts.site.common import ais_utils

pytestmark = [pytest.mark.benchmark]
PLAIN = {"target": None, "dataset": None, "mllog": None, "min_steps": 1}


def put(root: Path, files: dict[str, object]) -> Path:
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return root


def test_modelarts_files_are_summed_over_ranks(tmp_path: Path) -> None:
    names = {"throughput_0": 100.5, "throughput_1": 99.5, "accuracy": 0.77, "ranksize": 2}
    put(tmp_path, {f"outputs/train_url/{name}.json": value for name, value in names.items()})
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=2, **PLAIN))
    assert run.status == "valid", run.reasons
    assert number(run.throughput) == 200.0 and number(run.quality) == 0.77


def test_single_server_mode_is_the_mean_over_servers_and_prints_the_two_lines(tmp_path: Path) -> None:
    rates = {0: [450.77798444604605], 1: [450.38567065252664]}
    accuracies = [0.7138142585754395, 0.7139078378677368]
    for server, values in rates.items():
        put(tmp_path, {f"outputs/o/{server}/throughput_{i}.json": v for i, v in enumerate(values)})
        put(tmp_path, {f"outputs/o/accuracy_{server}.json": accuracies[server]})
    rules = made.made_rules(nodes=2, ranks=2, single_server=True, **PLAIN)
    run = measure_run(read_run(tmp_path), rules)
    assert run.status == "valid", run.reasons
    assert number(run.throughput) == 450.58182754928634
    assert number(run.quality) == 0.7138610482215881
    assert ingest(read_run(tmp_path), rules).report_lines() == [
        "report >> throughput_list:[450.77798444604605, 450.38567065252664] average:450.58182754928634",
        "report >> accuracy_list:[0.7138142585754395, 0.7139078378677368] average:0.7138610482215881",
    ]


def test_offline_files_are_read(tmp_path: Path) -> None:
    put(tmp_path, {"work/result/throughput_rank_0": "10.5", "work/result/throughput_rank_1": "11.5",
                   "work/result/eval_acc.log": "accuracy: 0.61\n"})  # fmt: skip
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=2, **PLAIN))
    assert (number(run.throughput), number(run.quality)) == (22.0, 0.61)


def test_result_log_alone_is_enough_for_one_rank(tmp_path: Path) -> None:
    put(tmp_path, {"result.log": {"throughput_ratio": "12.5", "accuracy": "0.5"}})
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=1, **PLAIN))
    assert (number(run.throughput), number(run.quality)) == (12.5, 0.5)


@pytest.mark.parametrize(
    ("content", "code"),
    [("", "truncated"), ("12.", "truncated"), ("NaN", "not-finite"), ('{"a":', "truncated")],
)
def test_a_broken_result_file_fails_the_run(tmp_path: Path, content: str, code: str) -> None:
    put(tmp_path, {"throughput_0.json": 5.0, "throughput_1.json": content})
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=2, **PLAIN))
    assert run.status == "failed" and code in {r.code for r in run.reasons}


def test_a_missing_rank_file_fails_the_run(tmp_path: Path) -> None:
    put(tmp_path, {"throughput_0.json": 5.0, "ranksize.json": 2})
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=2, **PLAIN))
    assert "rank-missing" in {r.code for r in run.reasons}


def test_set_result_of_two_ranks_is_summed_and_times_are_widened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_METRICS_DIR", str(tmp_path / "node-0"))
    for rank, (rate, begin) in enumerate([(10.0, "2026-01-01 10:00:00"), (12.0, "2026-01-01 09:59:00")]):
        monkeypatch.setenv("TRAINSHED_RANK", str(rank))
        ais_utils.set_result("training", "throughput_ratio", rate)
        ais_utils.set_result("training", "proc_start_time", begin)
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=2, **PLAIN))
    assert number(run.throughput) == 22.0
    assert run.settings["proc_start_time"] == "2026-01-01 09:59:00"


def test_set_result_on_the_command_line_keeps_all_values_of_parallel_callers(tmp_path: Path) -> None:
    env = {**os.environ, "TRAINSHED_METRICS_DIR": str(tmp_path), "TRAINSHED_RANK": "0"}
    command = [sys.executable, ais_utils.__file__, "set_result", "training", "throughput_ratio"]
    callers = [subprocess.Popen([*command, str(i)], env=env) for i in range(6)]
    assert [c.wait(30) for c in callers] == [0] * 6
    written = json.loads((tmp_path / "result_rank_0.json").read_text())
    assert sorted(written["training"]["throughput_ratio"]) == [0, 1, 2, 3, 4, 5]
    assert subprocess.run(command[:2], env=env, check=False, capture_output=True).returncode == 2


def test_ais_utils_calculates_rates_and_power() -> None:
    assert ais_utils.calc_throughput_rate(100, 10.0, 30.0) == 5.0
    assert ais_utils.calc_throughput_rate(60, "2026-01-01 10:00:00", "2026-01-01 10:01:00") == 1.0
    assert ais_utils.calc_single_avg_power([(0, 100), (1, 200), (3, 200)]) == pytest.approx(500 / 3)
    assert ais_utils.calc_single_max_power([90, 120.5, 100]) == 120.5
    with pytest.raises(ValueError, match="not after"):
        ais_utils.calc_throughput_rate(1, 5, 5)


def test_mllog_lines_and_patterns_are_found_in_rank_logs(tmp_path: Path) -> None:
    line = ':::MLLOG {"namespace": "", "key": "eval_accuracy", "value": 0.66, "metadata": {"epoch_num": 1}}'
    put(
        tmp_path,
        {"node-0/rank-0.log": f"img/s: 10\nimg/s: 12.5\nx {line}\n", "node-0/rank-1.log": "img/s: 7.5\n"},
    )
    rules = made.made_rules(nodes=1, ranks=2, **PLAIN, log_patterns={"throughput": r"img/s: ([\d.]+)"})
    run = measure_run(read_run(tmp_path), rules)
    assert run.status == "valid", run.reasons
    assert (number(run.throughput), number(run.quality)) == (20.0, 0.66)
    assert mllog_line("nothing") is None and mllog_line(":::MLLOG {broken") is None


def test_a_run_that_left_no_number_fails_and_says_so(tmp_path: Path) -> None:
    put(tmp_path, {"node-0/rank-0.log": "hello\n"})
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=1, **PLAIN))
    assert [r.code for r in run.reasons] == ["nothing-measured"]
    assert number(run.throughput) is None
