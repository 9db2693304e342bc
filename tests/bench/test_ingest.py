"""What scripts wrote for other tools is read, and what is broken is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import made
import pytest

from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.evidence import read_run
from trainshed.bench.measure.ingest import ingest, mllog_line
from trainshed.bench.measure.measure import measure_run
from trainshed.bench.result import RunResult, number
from trainshed.payload.common import ais_utils

pytestmark = [pytest.mark.benchmark]
PLAIN = {
    "target": None,
    "dataset": None,
    "mllog": None,
    "min_steps": 1,
    "metered": False,
    "synchronous": False,
}


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


@pytest.mark.field
def test_the_first_rank_may_speak_for_all(tmp_path: Path) -> None:
    put(tmp_path, {"node-0/rank-0.log": "rate 100\n", "node-0/rank-1.log": "rate 99\n"})
    patterns = {"throughput": r"rate (\d+)"}
    each = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=2, log_patterns=patterns, **PLAIN))
    assert number(each.throughput) == 199.0
    rules = made.made_rules(nodes=1, ranks=2, log_patterns=patterns, scope="job", **PLAIN)
    run = measure_run(read_run(tmp_path), rules)
    assert run.status == "valid", run.reasons
    assert number(run.throughput) == 100.0 and number(run.throughput_sum_of_ranks) is None
    put(tmp_path, {"node-0/rank-0.log": "nothing\n"})
    missing = measure_run(read_run(tmp_path), rules)
    assert [reason.code for reason in missing.reasons] == ["nothing-measured"], "only the first rank is read"


@pytest.mark.field
def test_without_a_meter_the_seed_that_every_rank_was_passed_counts(tmp_path: Path) -> None:
    root = made.MadeRun(nodes=1, seed=7).write(tmp_path / "run")
    for path in root.glob("node-0/meter-rank-*.jsonl"):
        path.unlink()
    put(root, {f"node-0/rank-{rank}.log": "rate 100\n" for rank in (0, 1)})
    rules = {"nodes": 1, "ranks": 2, "log_patterns": {"throughput": r"rate (\d+)"}, **PLAIN}

    def run(**changes: str) -> RunResult:
        return measure_run(read_run(root), made.made_rules(**rules, **changes))

    assert run().seed == 7 and run().status == "valid", run().reasons
    assert run(seed_parameter="").seed is None and run(seed_parameter="random-seed").seed is None
    plan = json.loads((root / "plan.json").read_text())
    plan["nodes"][0]["processes"][1]["argv"].remove("--seed=7")
    put(root, {"plan.json": plan})
    assert run().seed is None, "rank 1 was not passed it"


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


@pytest.mark.parametrize(
    ("single", "name", "words"),
    [
        (False, "o/throughput_4.json", "rank 4 left"),
        (True, "o/2/throughput_0.json", "server 2 left"),
        (True, "o/1/throughput_2.json", "rank 2 of server 1 left"),
        (True, "o/accuracy_2.json", "server 2 left"),
    ],
)
def test_results_of_ranks_and_servers_that_do_not_exist_fail_the_run(
    tmp_path: Path, single: bool, name: str, words: str
) -> None:
    ranks = [f"{r // 2}/throughput_{r % 2}" if single else f"throughput_{r}" for r in range(4)]
    put(tmp_path, {f"o/{rank}.json": 10.0 for rank in ranks})
    rules = made.made_rules(nodes=2, ranks=4, single_server=single, **PLAIN)
    assert measure_run(read_run(tmp_path), rules).status == "valid"
    put(tmp_path, {name: 10.0})
    run = measure_run(read_run(tmp_path), rules)
    assert any(r.code == "rank-unexpected" and r.message.startswith(words) for r in run.reasons), run.reasons


@pytest.mark.parametrize("name", ["throughput_0.json", "accuracy_0.json"])
def test_two_numbers_for_one_rank_fail_the_run_unless_they_are_the_same(tmp_path: Path, name: str) -> None:
    put(tmp_path, {"a/throughput_0.json": 5.0, "a/accuracy_0.json": 5.0, f"b/{name}": 5.0})
    rules = made.made_rules(nodes=1, ranks=1, **PLAIN)
    assert measure_run(read_run(tmp_path), rules).status == "valid"
    put(tmp_path, {f"b/{name}": 7.0})
    assert [r.code for r in measure_run(read_run(tmp_path), rules).reasons] == ["rank-twice"]


def test_a_run_directory_called_by_a_number_is_no_server(tmp_path: Path) -> None:
    root = put(tmp_path / "1", {"throughput_0.json": 5.0, "accuracy.json": 0.5})
    run = measure_run(read_run(root), made.made_rules(nodes=1, ranks=1, **PLAIN))
    assert run.status == "valid" and number(run.throughput) == 5.0


def test_without_a_meter_too_every_server_has_to_reach_the_target(tmp_path: Path) -> None:
    files = {f"o/{n}/throughput_0.json": 10.0 for n in (0, 1)} | {"o/accuracy_0.json": 0.99}
    put(tmp_path, files | {"o/accuracy_1.json": 0.6})
    rules = made.made_rules(nodes=2, ranks=2, single_server=True, **{**PLAIN, "target": {"value": 0.75}})
    run = measure_run(read_run(tmp_path), rules)
    assert [r.message for r in run.reasons] == [
        "server 1: accuracy 0.6 is not ≥ 0.75: the target was not reached"
    ]
    (tmp_path / "o/accuracy_1.json").unlink()
    missing = measure_run(read_run(tmp_path), rules)
    assert [(r.code, r.message[:9]) for r in missing.reasons] == [("quality-missing", "server 1:")]


def test_single_server_throughput_from_logs_is_the_mean_over_servers_too(tmp_path: Path) -> None:
    put(tmp_path, {f"node-{r // 2}/rank-{r}.log": "img/s: 10\n" for r in range(4)})
    rules = made.made_rules(
        nodes=2, ranks=4, single_server=True, **PLAIN, log_patterns={"throughput": r"img/s: ([\d.]+)"}
    )
    assert number(measure_run(read_run(tmp_path), rules).throughput) == 20.0


def mllog(value: str) -> str:
    return f':::MLLOG {{"key": "eval_accuracy", "value": {value}}}\n'


def test_the_most_trustworthy_source_of_a_quality_counts(tmp_path: Path) -> None:
    log = mllog("0.1") + "acc: 0.2\n" + mllog("0.3") + "acc: 0.4\n"
    put(tmp_path, {"node-0/rank-0.log": log, "throughput_0.json": 5.0})
    rules = made.made_rules(nodes=1, ranks=1, **PLAIN, log_patterns={"quality": r"acc: ([\d.]+)"})
    assert number(measure_run(read_run(tmp_path), rules).quality) == 0.3
    put(tmp_path, {"accuracy.json": 0.77})
    assert number(measure_run(read_run(tmp_path), rules).quality) == 0.77


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"node-0/rank-0.log": mllog("NaN")}, "not-finite"),
        ({"eval_acc.log": "accuracy 1e999"}, "not-finite"),
        ({"result_rank_0.json": {"training": {"throughput_ratio": []}}}, "truncated"),
    ],
)
def test_odd_numbers_of_other_tools_are_reasons_not_tracebacks(
    tmp_path: Path, files: dict[str, object], code: str
) -> None:
    put(tmp_path, {"throughput_0.json": 5.0} | files)
    run = measure_run(read_run(tmp_path), made.made_rules(nodes=1, ranks=1, **PLAIN))
    assert [r.code for r in run.reasons] == [code]


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        ({"throughput": "img/s: (["}, "not a valid regular expression"),
        ({"throughput": "img/s: .*"}, "has 0 groups, one is needed"),
        ({"speed": "(.*)"}, "choose throughput, quality, loss"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused_before_anything_runs(
    patterns: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Rules(workload="made", log_patterns=patterns)
