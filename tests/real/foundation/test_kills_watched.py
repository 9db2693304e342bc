"""200 kills while several processes read and reconcile the same home: one true end per run, and nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from killing import kinds

from support import ROOT, Shed, processes_of, until
from trainshed import Client
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.core, pytest.mark.real]

KILLS = 200
WATCHERS = ["ps", "show", "logs", "reconcile-1", "reconcile-2"]
SCRIPT = "setsid sleep 301 &\necho up\nsleep 300\n"


class Trials:
    """Runs that are killed, several at once, until there were enough kills."""

    def __init__(self, shed: Shed) -> None:
        self.client = Client.from_environment(shed.env, shed.home)
        self.job = shed.job("kill", {"t.sh": SCRIPT}, entry="t.sh")
        self.killed: Counter[str] = Counter()
        self.ended: dict[str, str] = {}
        self._seeds = count()

    def go_on(self) -> None:
        while self.killed.total() < KILLS:
            self.one(next(self._seeds))

    def one(self, seed: int) -> None:
        choice = random.Random(seed)
        plain = {"isolation": "plain"} if seed % 4 == 3 else {}
        run = self.client.submit(self.job, shape="2x1" if seed % 2 else "1x1", options=plain)
        if seed % 3:
            until(lambda: "rank" in kinds(run.id), 60, f"a rank of {run.id}")
        time.sleep(choice.random())  # the moment of the first kill is the test's input
        # Without its guard or a child of a rank a run goes on.
        self.kill(run.id, choice, 1, spared=("guard", "grandchild"))
        time.sleep(choice.random() * 0.15)
        self.kill(run.id, choice, choice.randint(2, 4))
        summary = run.wait(120)
        what = f"trial {seed}: run {run.id}: {summary.state.value}: {summary.reason}"
        assert summary.state in (RunState.FAILED, RunState.LOST), what
        assert summary.reason, what
        until(lambda: not processes_of(run.id), 60, lambda: f"{what}: {processes_of(run.id)} left: their end")
        self.ended[run.id] = f"{summary.state.value}: {summary.reason}"

    def kill(self, run: str, choice: random.Random, most: int, spared: tuple[str, ...] = ()) -> None:
        """SIGKILL for up to `most` of the run's processes that are there now."""
        found = [
            (kind, pid) for kind, pids in sorted(kinds(run).items()) for pid in pids if kind not in spared
        ]
        for kind, pid in choice.sample(found, min(len(found), most)):
            with contextlib.suppress(ProcessLookupError):  # the one before it may have been its end
                os.kill(pid, signal.SIGKILL)
                self.killed[kind] += 1


@contextlib.contextmanager
def watched(shed: Shed, folder: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    folder.mkdir()
    script = Path(__file__).parent / "watcher.py"
    watchers = {
        kind: subprocess.Popen(
            [sys.executable, script, kind, folder],
            cwd=ROOT,
            env=shed.env,
            stderr=(folder / f"{kind}.err").open("w"),
            text=True,
        )
        for kind in WATCHERS
    }
    try:
        yield watchers
    finally:
        for watcher in watchers.values():
            watcher.kill()
            watcher.wait()


def mounts_below(folder: Path) -> set[str]:
    """What is mounted below a folder, as any living process sees it."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            found |= {line for line in path.read_text().splitlines() if str(folder) in line}
    return found


@pytest.mark.timeout(1500)
def test_200_kills_under_many_eyes_leave_true_ends_and_nothing_else(shed: Shed, tmp_path: Path) -> None:
    trials, folder = Trials(shed), tmp_path / "watchers"
    with watched(shed, folder) as watchers:
        with ThreadPoolExecutor(4) as pool:
            for trial in [pool.submit(trials.go_on) for _ in range(4)]:
                trial.result()
        (folder / "over").touch()
        for kind, watcher in watchers.items():
            watcher.wait(240)
            said = (folder / f"{kind}.err").read_text()
            assert watcher.returncode == 0 and not said, f"{kind}: {said}"
    print(f"{trials.killed.total()} kills of {len(trials.ended)} runs: {dict(trials.killed)}")
    assert trials.killed.total() >= KILLS
    assert trials.killed.keys() >= {"rank", "agent", "coordinator", "driver", "sandbox", "guard"}
    for kind in WATCHERS:
        seen = json.loads((folder / f"{kind}.json").read_text())
        assert seen["ended"] == trials.ended, f"{kind} saw other ends"
        print(f"{kind}: {seen['looks']} looks")
    final = {s.id: f"{s.state.value}: {s.reason}" for s in trials.client.summaries()}
    assert final == trials.ended
    assert not [run for run in final if processes_of(run)]
    assert not mounts_below(shed.home)
