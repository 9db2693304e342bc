"""`bench run` on the real local engine: a whole result, a crash in the middle, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from trainshed.bench.folder import load_session
from trainshed.bench.judge.check import check

pytestmark = [pytest.mark.benchmark, pytest.mark.real]
TRAINSHED = [sys.executable, "-m", "trainshed.cli.main", "bench"]
LIMIT_SECONDS = 120

SLOW = """
import sys, time
from trainshed_meter import Meter
seed = int(next(a for a in sys.argv if a.startswith("--seed=")).split("=")[1])
meter = Meter()
meter.seed(seed)
meter.start()
print("marker-of-this-test", flush=True)
while True:
    time.sleep(0.02)
    meter.step(samples=1)
"""


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    folder = tmp_path / "my-model"
    subprocess.run([*TRAINSHED, "new", str(folder), "-f", "command"], check=True, stdout=subprocess.DEVNULL)
    # The same training, shorter, and judged as on a machine that others use.
    text = (folder / "workload.yaml").read_text().replace("epochs: 100", "epochs: 15")
    text = text.replace("max_spread: 0.5 ", "max_interval: 5.0\n    max_spread: 5.0 ")
    (folder / "workload.yaml").write_text(text)
    return folder


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {LIMIT_SECONDS} s"
        time.sleep(0.05)


def second_run_trains(result: Path) -> bool:
    """Run 2 of the benchmark is under way and has marked steps."""
    if not (result / "session.json").exists() or len(runs := load_session(result).runs) < 2:
        return False
    meters = Path(runs[1]).glob("node-0/**/meter-rank-0.jsonl")  # in reports/ until the end of the run
    return any('"steps"' in meter.read_text() for meter in meters)


def hang_from_the_second_run_on(workload: Path) -> None:
    """The first run is as it was, every other one trains until it is stopped."""
    train = workload / "train.py"
    slow = SLOW.replace("seed = int", "first = 101\nseed = int", 1)
    guard = "import sys\nif '--seed=101' not in sys.argv:\n" + "".join(
        f"    {x}\n" for x in slow.splitlines()
    )
    train.write_text(guard + train.read_text())


def test_a_made_workload_gives_a_valid_result_that_checks(workload: Path, tmp_path: Path) -> None:
    result = tmp_path / "result"
    done = subprocess.run([*TRAINSHED, "run", str(workload), "-j", "2x1", "--out", str(result), "--json"],
                          check=False, stdout=subprocess.PIPE, timeout=LIMIT_SECONDS)  # fmt: skip
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer["status"] == "valid" and answer["shape"] == {"nodes": 2, "ranks": 2}
    assert len({run["seed"] for run in answer["runs"]}) == 3
    assert check(result).findings == []
    for name in ("report.html", "report.md", "report.csv", "train_result_info.txt", "mllog/result_2.txt"):
        assert (result / name).stat().st_size > 0


def test_after_a_sigkill_collect_tells_what_there_is(workload: Path, tmp_path: Path) -> None:
    hang_from_the_second_run_on(workload)
    result = tmp_path / "result"
    child = subprocess.Popen(
        [*TRAINSHED, "run", str(workload), "-j", "1x1", "--seed", "100", "--out", str(result)]
    )
    try:
        until(lambda: second_run_trains(result), "the second run")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    second = Path(load_session(result).runs[1])
    until(lambda: not ranks_of(second), "the end of the killed benchmark's ranks")
    collected = subprocess.run(
        [*TRAINSHED, "collect", str(result), "--json"], check=False, stdout=subprocess.PIPE
    )
    assert collected.returncode == 1
    answer = json.loads(collected.stdout)
    assert [run["status"] for run in answer["runs"]] == ["valid", "failed"]
    codes = {reason["code"] for reason in answer["runs"][1]["reasons"]}
    assert "rank-killed" in codes and "runs-missing" in {r["code"] for r in answer["reasons"]}


def test_ctrl_c_stops_the_run_everywhere_and_says_how_to_go_on(workload: Path, tmp_path: Path) -> None:
    hang_from_the_second_run_on(workload)
    result = tmp_path / "result"
    command = [*TRAINSHED, "run", str(workload), "-j", "2x1", "--seed", "100", "--out", str(result)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: second_run_trains(result), "the second run")
    finally:
        child.send_signal(signal.SIGINT)
    _, words = child.communicate(timeout=LIMIT_SECONDS)
    assert child.returncode == 130
    assert f"trainshed bench collect {result}" in words
    assert ranks_of(Path(load_session(result).runs[1])) == []


def ranks_of(run: Path) -> list[int]:
    """Processes that live with this run's id in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TRAINSHED_RUN_ID") == run.name and process.pid != os.getpid():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_single_server_mode_is_the_mean_over_nodes(workload: Path, tmp_path: Path) -> None:
    result = tmp_path / "result"
    command = [
        *TRAINSHED,
        "run",
        str(workload),
        "-j",
        "2x1",
        "-n",
        "1",
        "--single-server",
        "--out",
        str(result),
        "--json",
    ]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, timeout=LIMIT_SECONDS)
    assert done.returncode == 0
    (run,) = json.loads(done.stdout)["runs"]
    nodes = [node["throughput"]["value"] for node in run["nodes"]]
    assert len(nodes) == 2 and run["throughput"]["value"] == pytest.approx(sum(nodes) / 2)
    assert run["quality"]["source"] == "meter; mean of 2 servers"
    assert check(result).findings == []
