"""Asking a run's engine about it changes nothing; the reconciler ends what hangs, and what a dead run left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import processes_of, tree, until
from trainshed import Client, files
from trainshed.api import Run
from trainshed.engines.cluster import guard
from trainshed.engines.local.engine import ENGINE
from trainshed.runs.states import RunState
from trainshed.runs.summary import started_at

pytestmark = [pytest.mark.hardening, pytest.mark.core]
SCRIPT = "setsid sleep 301 & sleep 302 & echo up; sleep 303"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path / "home")
    yield client
    for run in client.runs():  # a test that failed leaves nothing either
        for pid in processes_of(run.id):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def submit(client: Client, command: str, isolation: str = "plain") -> tuple[Run, int, int]:
    """A run, and the numbers of its driver and its guard."""
    run = client.submit({"name": "job", "command": command}, options={"isolation": isolation})
    alive = run.directory.alive_path
    numbers = until(lambda: len(found := alive.read_text().split()) == 2 and found, 60, "both numbers")
    return run, int(numbers[0]), int(numbers[1])


def kill_all_at_once(run: Run) -> None:
    """Driver, guard and agents: frozen first, so that none sees another's end."""
    found = [
        pid
        for pid, line in processes_of(run.id).items()
        if "engines.local.driver" in line or "agent.main" in line
    ]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            os.kill(pid, number)


def left(run: Run) -> dict[int, str]:
    return {pid: line for pid, line in processes_of(run.id).items() if line.startswith("sleep")}


def unchanged(run: Run) -> None:
    """What an engine's answer may change: nothing."""
    files_before, processes_before = tree(run.path), processes_of(run.id)
    for _ in range(3):
        ENGINE.poll([run.directory])
    assert tree(run.path) == files_before and processes_of(run.id) == processes_before


def test_a_frozen_driver_is_ended_by_the_reconciler_and_not_by_poll(client: Client) -> None:
    run, driver, watcher = submit(client, "sleep 1")
    until(lambda: started_at(run.directory.events("coordinator-")), 60, "ranks")
    os.kill(watcher, signal.SIGKILL)
    os.kill(driver, signal.SIGSTOP)
    lock = run.directory.node(0) / "alive.lock"
    until(lambda: lock.exists() and not files.is_held(lock), 60, "the agent's end")
    until(lambda: guard.is_frozen(driver), 20, "the driver is frozen")
    unchanged(run)
    assert ENGINE.poll([run.directory])[run.id].alive and guard.is_frozen(driver)
    assert run.wait(60).state in (RunState.SUCCEEDED, RunState.LOST)
    until(lambda: not processes_of(run.id), 20, lambda: f"the end of {processes_of(run.id)}")


def test_a_frozen_guard_is_woken_by_the_reconciler_and_not_by_poll(client: Client) -> None:
    run, _, watcher = submit(client, "sleep 300")
    os.kill(watcher, signal.SIGSTOP)
    until(lambda: guard.is_frozen(watcher), 20, "the guard is frozen")
    ENGINE.poll([run.directory])
    assert guard.is_frozen(watcher)
    run.refresh()
    until(lambda: not guard.is_frozen(watcher), 20, "the guard goes on")
    run.stop()
    assert run.wait(60).state is RunState.STOPPED


def test_what_a_dead_run_left_is_ended_by_the_reconciler_and_not_by_poll(client: Client) -> None:
    run, _, _ = submit(client, SCRIPT)
    until(lambda: len(left(run)) == 3, 60, lambda: f"all of {left(run)}")
    kill_all_at_once(run)
    until(
        lambda: len(left(run)) == 2 and not ENGINE.poll([run.directory])[run.id].alive,
        20,
        "only these are left",
    )
    unchanged(run)
    assert run.refresh().state is RunState.LOST
    assert not processes_of(run.id)


@pytest.fixture
def others(client: Client) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes that look like one of a run, each in all but one thing."""
    root = client.home / "runs"
    variables = {
        "another run of the same name in another home": ("job-1", "/elsewhere/runs/job-1/node-0/reports"),
        "a run whose name goes on": ("job-11", f"{root}/job-11/node-0/reports"),
        "no folder for reports": ("job-1", ""),
    }
    found = {
        what: subprocess.Popen(
            [sys.executable, "-c", "import time; print(flush=True); time.sleep(300)"],
            stdout=subprocess.PIPE,
            env={"TRAINSHED_RUN_ID": run, "TRAINSHED_METRICS_DIR": reports},
        )
        for what, (run, reports) in variables.items()
    }
    for process in found.values():
        assert process.stdout and process.stdout.readline()
    yield found
    for process in found.values():
        process.kill()
        process.communicate()


def test_nobody_elses_process_is_ended(client: Client, others: dict[str, subprocess.Popen[bytes]]) -> None:
    request = client.request({"name": "job", "command": SCRIPT}, options={"isolation": "plain"})
    (run,) = client.start(request, ids=["job-1"])
    until(lambda: len(left(run)) == 3, 60, lambda: f"all of {left(run)}")
    kill_all_at_once(run)
    until(lambda: not ENGINE.poll([run.directory])[run.id].alive, 20, "nobody is alive")
    assert run.refresh().state is RunState.LOST and not left(run)
    assert {what for what, process in others.items() if process.poll() is not None} == set()


def test_a_process_older_than_the_run_is_not_the_runs(client: Client) -> None:
    run, _, _ = submit(client, SCRIPT)
    until(lambda: len(left(run)) == 3, 60, lambda: f"all of {left(run)}")
    kill_all_at_once(run)
    until(
        lambda: len(left(run)) == 2 and not ENGINE.poll([run.directory])[run.id].alive, 20, "nobody is alive"
    )
    path = run.directory.events_folder / "submit.jsonl"
    event = json.loads(path.read_text())
    path.write_text(json.dumps(event | {"time": event["time"] + 3600}) + "\n")
    assert run.refresh().state is RunState.LOST and len(left(run)) == 2


def test_containers_are_left_alone_by_poll(client: Client, image: str) -> None:
    run = client.submit({"name": "box", "command": "echo up; sleep 300", "image": image})
    logs = run.path / "node-0"
    until(lambda: any("up" in path.read_text() for path in logs.glob("*.log")), 120, "the container")
    kill_all_at_once(run)
    until(lambda: not ENGINE.poll([run.directory])[run.id].alive, 20, "nobody is alive")
    listing = ["podman", "ps", "-a", "--format", "{{.Labels}}"]
    assert run.id in subprocess.run(listing, capture_output=True, text=True, timeout=120).stdout
    assert run.wait(180).state.is_final
    assert run.id not in subprocess.run(listing, capture_output=True, text=True, timeout=120).stdout
