"""Runs that wait in a server's queue: accepted without a driver, launched once, true after every kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from support import until
from trainshed import files
from trainshed.api import Client, Run
from trainshed.engines.local.engine import LocalEngine
from trainshed.errors import RefusedError, UsageError
from trainshed.runs.directory import Runs
from trainshed.runs.events import AttemptStarted, EventWriter, Launched, Submitted
from trainshed.runs.states import RunState
from trainshed.runs.summary import MOST_LAUNCHES, EngineStatus, is_queued

pytestmark = [pytest.mark.core, pytest.mark.server]
ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
PLAIN = {"isolation": "plain"}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "home", user="ann", team="red", environ=ENVIRON)


def accepted(client: Client, command: str = "true", **fields: object) -> Run:
    job = {"name": "job", "command": command} | fields
    return client.accept(client.request(job, options=PLAIN, labels={"a": "b"}))


def test_an_accepted_run_waits_with_its_reason_and_is_not_lost(client: Client) -> None:
    request = client.request({"name": "job", "command": "true"}, options=PLAIN)
    run = client.accept(request, reason="waits for 4 devices of team red")
    for _ in range(3):
        summary = next(client.summaries())
        assert (summary.state, summary.reason) == (RunState.PENDING, "waits for 4 devices of team red")
    assert run.directory.end() is None and not (run.path / "plan.json").exists()
    with pytest.raises(UsageError, match="has not ended"):
        client.remove(run)


def test_a_launch_runs_the_job_as_it_was_accepted(client: Client) -> None:
    run = accepted(client, "echo done")
    operator = Client(client.home, user="operator", environ=ENVIRON)
    assert operator.launch(operator.get(run.id)) is True
    assert run.wait(120).state is RunState.SUCCEEDED
    assert [line.text for line in run.logs()] == ["done"]
    body = run.directory.submission()
    assert (body.user, body.team, body.isolation, dict(body.labels)) == ("ann", "red", "plain", {"a": "b"})


def test_secrets_are_given_at_the_launch_and_not_recorded(client: Client) -> None:
    job = {"name": "job", "command": "echo ${#KEY}", "secrets": {"KEY": {"env": "NOT_SET_HERE"}}}
    request = client.request(job, options=PLAIN)
    with pytest.raises(UsageError, match="NOT_SET_HERE"):
        client.accept(request)
    assert not list(client.home.glob("runs/*"))
    run = client.accept(replace(request, secrets={"KEY": "a-secret-value"}))
    assert client.launch(run, {"KEY": "a-secret-value"}) and run.wait(120).state is RunState.SUCCEEDED
    assert [line.text for line in run.logs()] == ["14"]
    assert not [p for p in run.path.rglob("*") if p.is_file() and b"a-secret-value" in p.read_bytes()]


def test_a_run_is_launched_once_however_often_it_is_asked_for(client: Client, tmp_path: Path) -> None:
    run = accepted(client, f"echo ran >> {tmp_path}/marks")
    results: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(Client(client.home, user="x", environ=ENVIRON).launch(run))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(results) == [False] * 7 + [True]
    assert run.wait(120).state is RunState.SUCCEEDED
    assert client.launch(run) is False
    assert (tmp_path / "marks").read_text() == "ran\n"
    assert sum(isinstance(event.body, AttemptStarted) for event in run.events()) == 1


def test_what_can_never_run_is_refused_and_leaves_nothing(client: Client) -> None:
    with pytest.raises(RefusedError, match="this machine has"):
        accepted(client, resources="9x1000")
    assert not list(client.home.glob("runs/*"))


def test_busy_devices_are_no_reason_to_refuse(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise RefusedError("all are held by other runs", "wait", code="devices-busy")

    monkeypatch.setattr(LocalEngine, "prepare", busy)
    run = accepted(client)
    with pytest.raises(RefusedError) as refused:
        client.launch(run)
    assert refused.value.code == "devices-busy" and is_queued(run.directory)
    monkeypatch.undo()
    assert client.launch(run) and run.wait(120).state is RunState.SUCCEEDED


def test_stopping_a_queued_run_ends_it_at_once(client: Client) -> None:
    run = accepted(client)
    run.stop("changed my mind")
    summary = run.summary()
    assert (summary.state, summary.reason, summary.exit_code) == (RunState.STOPPED, "changed my mind", 130)
    assert client.launch(run) is False
    client.remove(run)


def test_a_stop_killed_half_way_is_completed_by_the_next_look(client: Client) -> None:
    run = accepted(client)
    run.directory.request_stop("enough", "ann")
    assert client.launch(run) is False, "a run that is being stopped does not start"
    assert run.refresh().state is RunState.STOPPED


def test_a_launch_under_way_is_not_ended_by_a_look_at_the_same_time(client: Client) -> None:
    run = accepted(client)
    run.directory.request_stop("enough", "ann")
    lock = files.hold(run.directory.alive_path)
    assert lock is not None
    try:
        assert run.refresh().state is RunState.STOPPING
    finally:
        os.close(lock)
    assert run.refresh().state is RunState.STOPPED


def test_a_run_that_starts_while_its_engine_is_asked_is_not_taken_for_lost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = accepted(client)
    poll = LocalEngine.poll

    def late(self: LocalEngine, runs: list[object]) -> dict[str, EngineStatus]:
        answer = poll(self, runs)  # type: ignore[arg-type]
        run.directory.writer("driver-1").append(AttemptStarted(1))
        return answer

    monkeypatch.setattr(LocalEngine, "poll", late)
    assert run.refresh().state is RunState.PREPARING
    assert run.directory.end() is None


def test_a_queued_run_that_cannot_be_launched_is_ended_with_the_reason(client: Client) -> None:
    run = accepted(client)
    assert client.refuse(run, "its code was removed") is True
    assert client.refuse(run, "again") is False
    assert (run.summary().state, run.summary().reason) == (RunState.FAILED, "its code was removed")


def test_drivers_that_never_begin_are_not_started_for_ever(client: Client) -> None:
    run = accepted(client)
    for _ in range(MOST_LAUNCHES):
        assert run.refresh().state is RunState.PENDING
        run.directory.writer("submit").append(Launched("plain"))
    assert client.launch(run) is False
    assert run.refresh().state is RunState.LOST


def test_several_events_are_one_write(tmp_path: Path) -> None:
    """A kill cannot come between the submission and the word that it waits."""
    writer = EventWriter(tmp_path, "submit")
    body = Submitted("job", "local", "1x1")
    sizes = []
    real = EventWriter.append.__globals__["os"].write

    def write(handle: int, data: bytes) -> int:
        sizes.append(len(data))
        return int(real(handle, data))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainshed.runs.events.os.write", write)
        writer.append(body, Launched("plain"))
    assert len(sizes) == 1 and (tmp_path / "submit.jsonl").read_bytes().count(b"\n") == 2


KILLER = """
import os, signal, subprocess, sys
from pathlib import Path
from trainshed.api import Client
from trainshed.engines.local.engine import LocalEngine
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import EventWriter

home, at, when, marks = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
calls = 0

def dying(function):
    def call(*args, **more):
        global calls
        calls += 1
        if calls == at and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        value = function(*args, **more)
        if calls == at and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return value
    return call

for owner, name in ((RunDirectory, "write"), (EventWriter, "append"), (LocalEngine, "prepare"),
                    (LocalEngine, "launch"), (subprocess, "Popen"), (os, "pwrite")):
    setattr(owner, name, dying(getattr(owner, name)))
client = Client(home, user="ann", environ={"PATH": "/usr/bin:/bin"})
job = {"name": "job", "command": f"echo ran >> {marks}"}
run = client.accept(client.request(job, options={"isolation": "plain"}), ids=["job-1"])
client.launch(run)
print("alive")
"""
"""Accepts and launches a run, and is killed before or after the n-th step of that."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, 10))
def test_killed_at_any_step_the_run_is_there_once_or_not_at_all(
    client: Client, tmp_path: Path, step: int, when: str
) -> None:
    marks = tmp_path / "marks"
    done = subprocess.run(
        [sys.executable, "-c", KILLER, client.home, str(step), when, marks], capture_output=True, text=True
    )
    assert done.returncode in (-signal.SIGKILL, 0), done.stderr
    runs = list(Runs.of(client.home).all())
    if not runs:
        assert not marks.exists()
        return
    run = client.get("job-1")
    # A driver whose launcher died gives up, or goes on: nobody knows which until its lock is free.
    until(lambda: run.directory.end() or not files.is_held(run.directory.alive_path), 120, "the driver's end")
    summary = run.refresh()
    if not summary.state.is_final:
        assert is_queued(run.directory) and not marks.exists()
        assert client.launch(run) is True
        summary = run.wait(120)
    assert summary.state is RunState.SUCCEEDED, summary
    assert marks.read_text() == "ran\n"
