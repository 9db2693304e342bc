"""A frozen driver, and a launcher that hangs: somebody ends them, whoever else is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import Shed, processes_of, until
from trainshed import Client
from trainshed.engines.cluster import driver, guard
from trainshed.engines.cluster.driver import Terms
from trainshed.engines.cluster.step import ClusterStep
from trainshed.engines.slurm.driver import SlurmDriver
from trainshed.runs.events import AttemptFinished, AttemptStarted
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import RunState
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.hardening, pytest.mark.core]

QUICK = "import os, signal, time\nfrom trainshed.engines.cluster import guard\nguard._LOOK, guard._LOOKS = 0.02, 3\n"
FREEZE = "os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(300)\n"
PLAIN = {"isolation": "plain"}


@pytest.mark.parametrize(
    ("start", "code"), [("stand_by", -signal.SIGKILL & 0xFF), ("be_watched", -signal.SIGKILL)]
)
def test_a_frozen_driver_is_ended_by_its_guard(start: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", f"{QUICK}guard.{start}()\n{FREEZE}"], timeout=120)
    assert done.returncode == code


@pytest.mark.parametrize("start", ["stand_by", "be_watched"])
def test_one_that_works_is_left_alone_and_leaves_no_guard(start: str, tmp_path: Path) -> None:
    line = f"{QUICK}guard.{start}()\ntime.sleep(0.5)\nraise SystemExit(3)\n"
    assert subprocess.run([sys.executable, "-c", line, str(tmp_path)], timeout=120).returncode == 3
    until(lambda: not processes_of(str(tmp_path)), 20, "the guard's end")


def _watched(client: Client, command: str, options: dict[str, str]) -> tuple[object, int, int]:
    run = client.submit({"name": "job", "command": command}, options=options)
    numbers = until(
        lambda: len(found := run.directory.alive_path.read_text().split()) == 2 and found, 60, "both numbers"
    )
    return run, int(numbers[0]), int(numbers[1])


def test_whoever_looks_ends_a_frozen_driver_that_has_lost_its_guard(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    run, pid, watcher = _watched(client, "sleep 1", PLAIN)
    os.kill(watcher, signal.SIGKILL)
    os.kill(pid, signal.SIGSTOP)
    ended = run.wait(120)  # type: ignore[attr-defined]
    assert ended.state in (RunState.SUCCEEDED, RunState.LOST), "as its coordinator recorded, or never got to"
    until(lambda: not processes_of(ended.id), 20, lambda: f"the end of {processes_of(ended.id)}")


def test_a_frozen_guard_goes_on_when_somebody_looks(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    run, pid, watcher = _watched(client, "sleep 300", PLAIN)
    os.kill(watcher, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    assert run.wait(120).state in (RunState.FAILED, RunState.LOST)  # type: ignore[attr-defined]
    name = run.id  # type: ignore[attr-defined]
    until(lambda: not processes_of(name), 20, lambda: f"the end of {processes_of(name)}")


def test_containers_of_a_run_without_driver_and_agents_are_removed(shed: Shed, image: str) -> None:
    client = Client(shed.home)
    job = {"name": "box", "command": "echo up; sleep 300", "image": image}
    run = client.submit(job)
    until(
        lambda: any("up" in path.read_text() for path in run.path.glob("node-0/*.log")), 120, "the container"
    )
    for pid, line in processes_of(run.id).items():
        if "engines.local.driver" in line or "agent.main" in line:
            os.kill(pid, signal.SIGKILL)
    assert run.wait(120).state.is_final
    listing = ["podman", "ps", "-a", "--format", "{{.Labels}}"]
    assert run.id not in subprocess.run(listing, capture_output=True, text=True, timeout=120).stdout


def test_a_launcher_that_hangs_after_the_attempts_end_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_AFTER_END", 0.1)
    monkeypatch.setattr(driver, "_TICK", 0.05)
    job = load_job({"name": "job", "command": "true"})
    run = Client(tmp_path / "home")._runs.create("job")[0]
    mine = SlurmDriver(run, job, Terms(tmp_path / "scratch"), {})
    mine._attempt = 1
    run.writer("driver-0").append(AttemptStarted(1))
    run.writer("coordinator-1").append(AttemptFinished(1, Outcome.of(None)))
    began = time.monotonic()
    assert mine._watch(ClusterStep(["cat"], ["a"]), 1.0) == 0
    assert time.monotonic() - began < 100, "nothing else would have ended it"


def test_what_a_launcher_leaves_behind_ends_with_its_step() -> None:
    step = ClusterStep(["sh", "-c", "sleep 301 & exec cat"], ["a"])
    group = step._process.pid
    step.close()
    until(lambda: not _members(group), 20, "the end of the launcher's group")


def _members(group: int) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(") ")[2].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields and fields[0] != "Z" and int(fields[2]) == group:
            found.append(entry.name)
    return found


def test_only_a_guard_is_woken() -> None:
    assert not guard.wake(os.getpid())
