"""Stopping, crashing, failing and handing in: an ais-bench package in all its lives, without a framework."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from packages import ENDLESS, QUICK, Unpacked, unpacked

from support import until
from trainshed.tester.model import Test
from trainshed.tester.server import HttpServer
from trainshed.tester.service import TesterService

pytestmark = [pytest.mark.benchmark, pytest.mark.real]


def training(package: Unpacked) -> list[int]:
    """Processes that run this package's training script."""
    found = []
    for process in psutil.process_iter(["pid", "environ", "cmdline"]):
        info = process.info
        home = (info["environ"] or {}).get("TRAINSHED_METRICS_DIR", "")
        if home.startswith(str(package.home)) and any(
            "start_modelarts" in word for word in info["cmdline"] or ()
        ):
            found.append(info["pid"])
    return found


def has_begun(package: Unpacked) -> None:
    """Training runs, and its log has been synced into log/."""
    begun = "training has begun"
    until(lambda: any(begun in p.read_text() for p in (package.root / "log").glob("job*.log")), 90, begun)


def test_stop_hits_exactly_the_newest_version_of_the_name(tmp_path: Path) -> None:
    mine = unpacked(tmp_path / "mine", ENDLESS, devices=1)
    other = unpacked(tmp_path / "other", ENDLESS, devices=1, job_name="aisbench-debug-2")
    other = Unpacked(other.root, mine.home)
    running = [mine.start("test"), other.start("test")]
    try:
        for package in (mine, other):
            has_begun(package)
        done = mine.modelarts("--action", "stop")
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(
            r"jobname:aisbench-debug jobid:\d+ preversionid:\d+ jobstatus:JOBSTAT_RUNNING "
            r"stop status:\{'is_success': True\}\n",
            done.stdout,
        )
        out, _ = running[0].communicate(timeout=60)
        assert running[0].returncode == 2 and "JOBSTAT_KILLED" in out, out
        assert running[1].poll() is None and training(other), "the job of a similar name was hit"

        again = mine.modelarts("--action", "stop")
        assert again.returncode == 1 and "'is_success': False" in again.stdout

        running[1].send_signal(signal.SIGINT)
        out, _ = running[1].communicate(timeout=60)
        assert running[1].returncode == 130, out
        assert training(mine) == [], "Ctrl-C left the job running"
        assert "BenchManager stop done" in (other.root / "log" / "stub.log").read_text()
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        for package in (mine, other):
            for pid in training(package):
                os.kill(pid, signal.SIGKILL)


def test_after_a_crash_the_result_is_collected_again(tmp_path: Path) -> None:
    package = unpacked(tmp_path, ENDLESS)
    process = package.start("test")
    has_begun(package)
    for child in psutil.Process(process.pid).children(recursive=True):
        if "trainshed.engines" not in " ".join(child.cmdline()) and "trainshed.bench" in " ".join(
            child.cmdline()
        ):
            child.kill()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert training(package), "a crash of the stubs must not end the job, as on the platform"
    (tmp_path / "data" / "go").touch()
    done = package.stubs("collect", "test")
    assert done.returncode == 0, done.stdout
    assert "train_result_info" in (package.root / "log" / "stub.log").read_text()
    assert (package.root / "result" / "aisbench-debug-V1" / "manifest.json").is_file()
    assert package.stubs("collect", "test").returncode == 0, "collecting once more does no harm"


NO_RANK_1 = QUICK + "\nimport os\nif os.environ['RANK'] == '1':\n    os._exit(0)\n"
NO_ACCURACY = QUICK.replace('meter.quality("accuracy", 0.7 + epoch / 10)', "pass")
BELOW_TARGET = QUICK.replace("0.7 + epoch / 10", "0.1")


@pytest.mark.parametrize(
    ("source", "edit", "code", "words"),
    [
        (QUICK, {"PYTHON_COMMAND": "python9.9"}, 1, "PYTHON_COMMAND=python9.9 was not found"),
        ("import sys\nprint('no such data')\nsys.exit(7)\n", {}, 2, "exited with 7"),
        (NO_ACCURACY, {}, 3, "no accuracy.json"),
        (NO_RANK_1, {}, 4, "throughput_1.json"),
        (BELOW_TARGET, {}, 4, "target"),
    ],
    ids=["init", "run_train", "run_eval", "missing rank", "target not reached"],
)
def test_the_exit_code_names_the_step_that_failed(
    tmp_path: Path, source: str, edit: dict[str, str], code: int, words: str
) -> None:
    package = unpacked(tmp_path, source)
    package.edit("config.sh", **edit)
    done = package.stubs("test")
    assert done.returncode == code, done.stdout
    assert words in done.stdout
    assert "train_result_info" not in (package.root / "log" / "stub.log").read_text()


@pytest.fixture
def tester(tmp_path: Path) -> Iterator[tuple[TesterService, HttpServer]]:
    service = TesterService(tmp_path / "tester")
    service.start()
    server = HttpServer(service, ("127.0.0.1", 0))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield service, server
    server.shutdown()
    server.server_close()
    service.stop()
    thread.join(10)


def test_a_network_test_with_v2_hands_its_result_in(
    tmp_path: Path, tester: tuple[TesterService, HttpServer]
) -> None:
    service, server = tester
    package = unpacked(tmp_path)
    # A package runs once; the organiser has the rules that it was built with.
    promised = json.loads((package.root / "code" / "rules.json").read_text()) | {"runs": 1}
    rules = json.dumps(promised)
    token = service.ledger.add_test(
        Test("20210126-ljp0IY", model="tiny-test_v1.5", rules=rules, attested=True)
    )
    package.edit("config.sh", MODELARTS_VERSION="V2")
    config = package.root / "code" / "config.json"
    values = {"testid": "20210126-ljp0IY", "Model": "tiny-test_v1.5", "Division": "closed",
              "tester_server_port": server.server_address[1]}  # fmt: skip
    config.write_text(json.dumps(values | {"Model": "bert"}))
    wrong = package.stubs(TRAINSHED_TESTER_TOKEN=token)
    assert wrong.returncode == 1 and "this package trains 'Tiny-Test v1.5'" in wrong.stdout

    config.write_text(json.dumps(values | {"Division": "open"}))
    wrong = package.stubs(TRAINSHED_TESTER_TOKEN=token)
    assert wrong.returncode == 1 and "the Tester has 'closed'" in wrong.stdout

    config.write_text(json.dumps(values))
    done = package.stubs(TRAINSHED_TESTER_TOKEN=token)
    assert done.returncode == 0, done.stdout
    (stored,) = service.ledger.results()
    assert (stored.state, stored.findings) == ("valid", ())
    assert stored.summary["attestation"].startswith("attested: ")
    stub = (package.root / "log" / "stub.log").read_text()
    assert f"acknowledged as {stored.upload}" in stub and "tester verdict: valid" in stub
    assert token not in stub + done.stdout
    assert list((package.root / "log").glob("modelarts-job-*-worker-0.log"))
    assert re.search(r"aisbench-debug\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d", " ".join(os.listdir(tmp_path / "out")))
    kept = service.inbox.folder("20210126-ljp0IY", stored.upload)
    assert (kept / "log" / "benchmark.log").is_file()

    from trainshed.tester.ranking import rank

    (table,) = rank(service.ledger.tests(), service.ledger.results())
    assert table.places[0].score == pytest.approx(stored.summary["score"])
