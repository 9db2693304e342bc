"""The local driver: a request to stop is never lost, and no end is recorded while agents work."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import processes_of
from trainshed.api import Client
from trainshed.engines.local import driver
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.local.task import Task
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import FailureSeen
from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause, RunState

pytestmark = [pytest.mark.foundation, pytest.mark.core]
JOB = {"name": "job", "command": "sleep 300"}
PLAIN = {"isolation": "plain"}
TASK = Task("00", {}, False, 1, "plain", "/nowhere", "", (), ())


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "home")


def test_a_stop_before_the_driver_listens_is_not_lost(client: Client) -> None:
    run = client.submit(JOB, options=PLAIN)
    run.stop("changed my mind")
    ended = run.wait(60)
    assert (ended.state, ended.reason) == (RunState.STOPPED, "changed my mind")


def test_no_end_is_recorded_while_an_agent_works(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = LocalEngine.launch

    def spoilt(self: LocalEngine, prepared: Any, runs: Any, locks: Any) -> None:
        (runs[0].node(1) / "agent.log").mkdir(parents=True)
        launch(self, prepared, runs, locks)

    monkeypatch.setattr(LocalEngine, "launch", spoilt)
    run = client.submit(JOB, shape="2x1", options=PLAIN)
    ended = run.wait(60)
    left = [line for line in processes_of(run.id).values() if "agent.main" in line]
    assert not left
    assert ended.state is RunState.FAILED and "IsADirectoryError" in ended.reason


class Ended:
    """A process that has ended, or will."""

    def __init__(self, pid: int, code: int) -> None:
        self.pid, self.returncode = pid, code

    def wait(self) -> int:
        return self.returncode


def agent_of(index: int, code: int, pid: int = -1, handle: int = -1) -> tuple[driver._Agent, socket.socket]:
    """An agent as the driver sees it, and the agent's own end of the line."""
    mine, its = socket.socketpair()
    mine.setblocking(False)
    node = SimpleNamespace(index=index, name=f"worker-{index}")
    return driver._Agent(node, Ended(pid, code), mine, handle=handle), its  # type: ignore[arg-type]


def driver_of(run: RunDirectory, *agents: driver._Agent, task: Task = TASK) -> driver.Driver:
    made = driver.Driver(run, SimpleNamespace(grace=0.0, timeout=None), task)  # type: ignore[arg-type]
    made._agents = list(agents)
    made._attempt = 1
    return made


def test_what_an_earlier_attempt_recorded_is_not_this_ones_reason(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    recorded = Failure(Cause.RANK, "of the first attempt")
    run.node_writer(0, 1).append(FailureSeen(1, recorded))
    driven = driver_of(run, agent_of(0, 1)[0])
    assert driven._outcome().failure == recorded
    driven._attempt = 2
    later = driven._outcome().failure
    assert later and later.cause is Cause.NODE and "was lost: its agent exited with 1" in later.reason


def test_agents_that_ended_well_without_a_record_are_a_failure_of_the_engine(tmp_path: Path) -> None:
    outcome = driver_of(RunDirectory(tmp_path), agent_of(0, 0)[0])._outcome()
    assert outcome.failure and outcome.failure.cause is Cause.ENGINE
    assert "ended without recording why" in outcome.failure.reason


@pytest.fixture
def ends() -> Iterator[list[tuple[int, int]]]:
    """Pipes that stand for the ends of two agents: readable once it has ended."""
    made = [os.pipe(), os.pipe()]
    yield made
    for _, write in made:
        os.close(write)


@pytest.fixture
def unburied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents of these tests are not processes: there is nothing to reap but the handle."""

    def reap(_driver: driver.Driver, agent: driver._Agent) -> None:
        os.close(agent.handle)
        agent.handle = -1

    monkeypatch.setattr(driver.Driver, "_reap", reap)


@pytest.mark.usefixtures("unburied")
@pytest.mark.parametrize(
    ("node", "code", "recorded", "words"),
    [
        (0, 0, "", ""),
        (3, 0, "", ""),
        (0, 1, "", "node 0 (worker-0) was lost: its agent exited with 1"),
        (0, -9, "", "node 0 (worker-0) was lost: its agent was killed by SIGKILL"),
        (3, 137, "", "node 3 (worker-3) was lost: its agent was killed by SIGKILL"),
        (3, 1, "", "node 3 (worker-3) was lost: its agent exited with 1"),
        (3, 1, "no such data", "no such data"),
    ],
)
def test_the_others_are_told_of_a_lost_agent_in_its_own_words(
    tmp_path: Path, ends: list[tuple[int, int]], node: int, code: int, recorded: str, words: str
) -> None:
    run = RunDirectory(tmp_path)
    if recorded:
        run.node_writer(node, 1).append(FailureSeen(1, Failure(Cause.STAGING, recorded)))
    agent, _ = agent_of(node, code, handle=ends[0][0])
    other, line = agent_of(7, 0, handle=ends[1][0])
    driven = driver_of(run, agent, other)
    for _, write in ends:
        os.write(write, b"x")
    driven._watch()
    line.setblocking(False)
    try:
        told = json.loads(line.recv(1 << 16))["reason"]
    except BlockingIOError:
        told = ""
    assert told == words


def test_an_agent_that_could_not_start_is_told_of_by_the_last_line_of_its_log(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.node(2).mkdir()
    (run.node(2) / "agent.log").write_text("Traceback\nModuleNotFoundError: No module named 'psutil'\n")
    failure = driver_of(run)._lost(agent_of(2, 1)[0])
    assert failure.reason.endswith("its agent exited with 1: ModuleNotFoundError: No module named 'psutil'")
    assert failure.log == "node-2/agent.log" and failure.last_lines[-1].startswith("ModuleNotFoundError")


def test_a_stop_has_the_reason_that_was_given_or_the_signals_name(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    driven = driver_of(run)
    assert driven._stop_requested() is None
    driven.signalled.append("SIGTERM")
    assert driven._stop_requested() == Failure(Cause.STOP, "stopped by SIGTERM")
    run.request_stop("seen enough")
    assert driver_of(run)._stop_requested() == Failure(Cause.STOP, "seen enough")


def test_keys_of_the_object_store_are_not_carried_from_node_to_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "hush-hush-7718")
    client = Client.from_environment(keys | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, tmp_path / "home")
    monkeypatch.setattr(LocalEngine, "launch", lambda *_: None)
    run = client.submit(
        JOB, shape="2x1", options=PLAIN, services=["ssh"], env={"WHERE": "s3://bucket/"}
    ).directory
    planned = run.plan_json()["env"]["TRAINSHED_NODE_VARIABLES"].split(",")
    assert {"AWS_SECRET_ACCESS_KEY", "OBS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"} <= set(planned)
    assert b"hush-hush" not in (run.path / "plan.json").read_bytes()


@pytest.mark.usefixtures("unburied")
@pytest.mark.parametrize(("code", "killed"), [(0, set()), (1, {102})])
def test_only_a_failure_sets_the_others_a_time_and_only_the_living_are_killed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: list[tuple[int, int]],
    code: int,
    killed: set[int],
) -> None:
    """Of two agents the first ends at once, the second after some ticks; the time to close is up at once."""
    first, _one = agent_of(1, code, 101, ends[0][0])
    second, _other = agent_of(2, 0, 102, ends[1][0])
    struck: set[int] = set()
    ticks = count()

    def tick(_driver: driver.Driver) -> None:
        if next(ticks) == 3:
            os.write(ends[1][1], b"x")

    monkeypatch.setattr(driver, "_CLOSING", -100.0)
    monkeypatch.setattr(driver, "_kill", struck.add)
    monkeypatch.setattr(driver.Driver, "_stop_requested", tick)
    os.write(ends[0][1], b"x")
    driver_of(RunDirectory(tmp_path), first, second)._watch()
    assert struck == killed


@pytest.mark.usefixtures("unburied")
def test_a_frozen_agent_is_declared_lost_and_killed_and_a_starved_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[tuple[int, int]]
) -> None:
    frozen, _one = agent_of(1, 0, 101, ends[0][0])
    starved, _other = agent_of(2, 0, 102, ends[1][0])
    frozen.heard = starved.heard = -1e9
    struck: list[int] = []
    told: list[str] = []
    monkeypatch.setattr(driver, "_kill", struck.append)
    monkeypatch.setattr(driver, "is_starved", lambda pid: pid == 102)
    driven = driver_of(RunDirectory(tmp_path), frozen, starved)
    monkeypatch.setattr(driven, "_tell", lambda failure: told.append(failure.reason))
    for _ in range(3):
        driven._end_silent([frozen, starved])
    assert set(struck) == {101} and len(told) == 1
    assert told[0].startswith("node 1 (worker-1) was lost: no message from its agent for")
    for agent in (frozen, starved):
        os.close(agent.handle)


def test_the_task_of_another_release_is_refused_in_one_sentence() -> None:
    assert Task.from_line(TASK.to_line()) == TASK
    for line in (b"", b"[]", b"{}", TASK.to_line().replace(b'"version": 1', b'"version": 2')):
        with pytest.raises(TrainshedError) as caught:
            Task.from_line(line)
        assert caught.value.code == "other-release" and "\n" not in caught.value.message
    assert "format 2, this release reads 1" in caught.value.message


@pytest.mark.hardening
def test_agents_that_exit_before_they_register_end_the_run_at_once_in_their_own_words(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = LocalEngine.launch

    def spoilt(self: LocalEngine, prepared: Any, runs: Any, locks: Any) -> None:
        plan = runs[0].plan_json() | {"kind": "no-such-kind"}
        runs[0].write("plan.json", json.dumps(plan))
        launch(self, prepared, runs, locks)

    monkeypatch.setattr(LocalEngine, "launch", spoilt)
    run = client.submit(JOB, shape="2x1", options=PLAIN)
    ended = run.wait(100)
    assert ended.state is RunState.FAILED, "long before the 120 s for registering"
    assert "exited with 1" in ended.reason and "no-such-kind" in ended.reason
