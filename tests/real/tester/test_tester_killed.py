"""The Tester is killed again and again during 50 uploads: every result arrives once, complete."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from made import MadeRun, made_result, made_rules

from support import until
from trainshed.bench import manifest
from trainshed.tester.ledger import Ledger
from trainshed.tester.model import Test
from trainshed.tester.spool import Participant, Spool

pytestmark = [pytest.mark.benchmark, pytest.mark.real]

UPLOADS = 50
KILLS = 8


class Killed:
    """`trainshed tester serve` in its own process, on one port through all its lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainshed.cli.main", "tester", "serve", "--quiet",
             "--folder", str(self.folder), "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the Tester did not start"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("the Tester did not listen in time")

    def kill(self) -> None:
        assert self.process
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


RULES = made_rules(runs=1, nodes=1, ranks=1, mllog=None, log_patterns={})


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small result, with one log of several parts."""
    tmp = tmp_path_factory.mktemp("small")
    folder = made_result(tmp, RULES, [MadeRun(nodes=1, per_node=1, seed=1)], seal=False)
    (folder / "runs/1/node-0/rank-0.log").write_text("a line of the log\n" * 300_000)
    manifest.write(folder)
    return folder


def variant(result: Path, target: Path, index: int) -> Path:
    """The same result with its own word, so that each of the 50 is another result."""
    shutil.copytree(result, target, copy_function=os.link)
    (target / "note.txt").write_text(f"result {index}\n" * (index * 100))
    (target / "manifest.json").unlink()
    manifest.write(target)
    return target


def test_every_result_arrives_once_and_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: Path
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    folder = tmp_path / "tester"
    ledger = Ledger(folder / "tester.sqlite")
    token = ledger.add_test(
        Test("t1", model="made", division="open", rules=RULES.model_dump_json(), max_results=UPLOADS)
    )
    monkeypatch.setenv("TRAINSHED_TESTER_TOKEN", token)
    tester, spool = Killed(folder), Spool(Participant.from_environment(os.environ))
    tester.start()
    entries = [
        spool.keep(variant(result, tmp_path / f"r{i}", i), f"http://127.0.0.1:{tester.port}", "t1")
        for i in range(UPLOADS)
    ]

    problems: list[BaseException] = []
    queue = iter(entries)
    guard = threading.Lock()

    def sender() -> None:
        while True:
            with guard:
                entry = next(queue, None)
            if entry is None:
                return
            try:
                spool.send(entry, seconds=200)
            except BaseException as error:
                problems.append(error)
                return

    threads = [threading.Thread(target=sender) for _ in range(4)]
    for thread in threads:
        thread.start()
    chance, kills = random.Random(5), 0
    try:
        while any(thread.is_alive() for thread in threads) and kills < KILLS:
            # Killed at any moment after some progress: not a wait for something, but the moment of the kill.
            time.sleep(chance.uniform(0.05, 0.8))
            tester.kill()
            kills += 1
            tester.start()
        for thread in threads:
            thread.join(200)
        assert not problems, problems
        assert kills >= 3, "the uploads were over before the Tester could be killed"
        deadline = time.monotonic() + 120
        while ledger.unjudged() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        tester.kill()

    stored = ledger.results("t1")
    assert len(stored) == UPLOADS
    assert {item.upload for item in stored} == {entry.upload for entry in entries}
    assert [item.findings for item in stored if item.state != "valid"] == []
    for item in stored:
        assert manifest.verify(folder / "results" / "t1" / item.upload) == []
    assert spool.waiting() == []
    assert not list((folder / "staging").glob("*/*/manifest.json"))
    receipts = [json.loads(path.read_text()) for path in (spool.root / "sent").glob("*.json")]
    assert len({receipt["upload"] for receipt in receipts}) == UPLOADS


def test_a_sender_killed_in_the_middle_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: Path
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    folder = tmp_path / "tester"
    ledger = Ledger(folder / "tester.sqlite")
    token = ledger.add_test(Test("t1", model="made", division="open", rules=RULES.model_dump_json()))
    monkeypatch.setenv("TRAINSHED_TESTER_TOKEN", token)
    tester = Killed(folder)
    tester.start()
    large = variant(result, tmp_path / "large", 1)
    (large / "runs/1/node-0/rank-0.log").unlink()  # a link to that of the other tests
    (large / "runs/1/node-0/rank-0.log").write_text("a line of the log\n" * 4_000_000)
    (large / "manifest.json").unlink()
    manifest.write(large)
    entry = Spool(Participant.from_environment(os.environ)).keep(
        large, f"http://127.0.0.1:{tester.port}", "t1"
    )
    command = [sys.executable, "-m", "trainshed.cli.main", "tester", "resend", "--json"]
    staged = folder / "staging" / "t1" / entry.upload / "files"
    try:
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: any(path.is_file() for path in staged.rglob("rank-0.log*")), 60, "part of the log")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert first.returncode == -signal.SIGKILL and not ledger.results("t1"), "killed in the middle"
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        assert [item["state"] for item in json.loads(done.stdout)] == ["sent"]
    finally:
        tester.kill()
    assert [item.upload for item in ledger.results("t1")] == [entry.upload]
    assert manifest.verify(folder / "results" / "t1" / entry.upload) == []
