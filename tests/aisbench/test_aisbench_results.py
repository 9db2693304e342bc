"""Result files become the lines and the block that the original prints, or an error that names what is missing."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
import yaml

from trainshed.access import StoreAccess
from trainshed.aisbench import results
from trainshed.aisbench.config import Package
from trainshed.aisbench.logsync import LogSync
from trainshed.aisbench.stublog import StubLog, TransmitServer, stamp
from trainshed.aisbench.train import upload_code
from trainshed.runs.directory import RunDirectory

pytestmark = [pytest.mark.benchmark]


def package(
    tmp: Path, files: dict[str, object], nodes: int = 2, devices: int = 1, single: bool = True
) -> Package:
    made = Package(tmp)
    evidence = made.work / "evidence"
    evidence.mkdir(parents=True)
    job = {"name": "j", "command": "true", "resources": {"nodes": nodes, "devices": devices},
           "mode": "single_server" if single else "distributed"}  # fmt: skip
    (evidence / "job.yaml").write_text(yaml.safe_dump(job))
    for name, value in files.items():
        path = made.work / "output" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return made


def test_single_server_lines_are_those_of_the_original(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        {"0/throughput_0.json": 450.77798444604605, "1/throughput_0.json": 450.38567065252664,
         "accuracy_0.json": 0.7138142585754395, "accuracy_1.json": 0.7139078378677368},
    )  # fmt: skip
    assert results.report_lines(results.found_in(made), single=True) == [
        "report >> throughput_list:[450.77798444604605, 450.38567065252664] average:450.58182754928634",
        "report >> accuracy_list:[0.7138142585754395, 0.7139078378677368] average:0.7138610482215881",
    ]
    results.check_throughput(made)
    assert results.check_accuracy(made) == pytest.approx(0.71386104822)


def test_a_job_over_all_servers_reports_the_sum(tmp_path: Path) -> None:
    files = {"throughput_0.json": 10.5, "throughput_1.json": 20.0, "accuracy.json": 0.5, "ranksize.json": 2}
    made = package(tmp_path, files, single=False)
    lines = results.report_lines(results.found_in(made), single=False)
    assert lines[0] == "report >> throughput_list:[10.5, 20.0] sum:30.5"


@pytest.mark.parametrize(
    ("files", "single", "words"),
    [
        ({"throughput_0.json": 1.0, "accuracy.json": 0.5}, False, r"1 of 2 ranks .* throughput_1\.json"),
        (
            {"0/throughput_0.json": 1.0, "accuracy_0.json": 0.5, "accuracy_1.json": 0.5},
            True,
            r"1/throughput_0\.json",
        ),
        (
            {"0/throughput_0.json": 1.0, "1/throughput_0.json": 1.0, "accuracy_0.json": 0.5},
            True,
            r"accuracy_1\.json",
        ),
        ({"throughput_0.json": 1.0, "throughput_1.json": 1.0}, False, r"no accuracy\.json"),
        ({"throughput_0.json": 1.0, "throughput_1.json": "NaN", "accuracy.json": 0.5}, False, "NaN"),
        ({"throughput_0.json": 1.0, "throughput_1.json": "", "accuracy.json": 0.5}, False, "empty"),
    ],
)
def test_what_is_missing_or_broken_is_named(tmp_path: Path, files: dict, single: bool, words: str) -> None:
    made = package(tmp_path, files, single=single)
    with pytest.raises(results.Incomplete, match=words):
        results.check_accuracy(made)
        results.check_throughput(made)


def test_the_log_is_rendered_as_the_original_renders_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = StubLog(tmp_path / "log" / "stub.log", print)
    log.info("BenchManager stop done")
    line = (tmp_path / "log" / "stub.log").read_text()
    assert re.fullmatch(r"\[\d{4}-\d{1,2}-\d{1,2} \d\d:\d\d:\d\d\]\[INFO\]BenchManager stop done\n", line)
    assert capsys.readouterr().out == line
    assert re.fullmatch(r"\[2022-7-1[234] \d\d:27:19\]", stamp(1657682839))


def test_the_transmit_server_really_listens_and_is_released() -> None:
    server = TransmitServer(("127.0.0.1", 0), lambda: {"state": "running"})
    with socket.create_connection((server.host, server.port), 5) as connection:
        assert json.loads(connection.makefile().readline()) == {"state": "running"}
    server.close()
    with pytest.raises(OSError):
        socket.create_connection((server.host, server.port), 1)


def test_stale_code_does_not_survive_an_upload(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name / "run").mkdir(parents=True)
    (tmp_path / "old" / "run" / "cann-old.run").write_text("old")
    (tmp_path / "old" / "train.py").write_text("old")
    (tmp_path / "new" / "train.py").write_text("new")
    upload_code(tmp_path / "new", str(tmp_path / "old"), StoreAccess(tmp_path))
    assert [p.name for p in (tmp_path / "old").rglob("*") if p.is_file()] == ["train.py"]
    assert (tmp_path / "old" / "train.py").read_text() == "new"


def test_logs_are_synced_under_the_promised_names_and_only_once(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.node(0).mkdir(parents=True)
    plan = {"version": 2, "nodes": [{"index": 0, "log": {"name": "job1-job-x-0.log"}}]}
    (run.path / "plan.json").write_text(json.dumps(plan))
    log = run.node(0) / "rank-0.log"
    log.write_text("one\ntw")
    sync = LogSync(run, tmp_path / "log")
    sync.sync()
    log.write_text("one\ntwo\nthree")
    sync.sync(final=True)
    target = tmp_path / "log" / "job1-job-x-0.log"
    assert target.read_text() == "[rank-0] one\n[rank-0] two\n[rank-0] three\n"
    LogSync(run, tmp_path / "log").sync(final=True)
    assert target.read_text().count("one") == 1
