"""The local driver: a request to stop is never lost, and no end is recorded while agents work."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import processes_of, until
from trainshed.engines.base import Request
from trainshed.engines.local import driver
from trainshed.engines.local.engine import LocalEngine
from trainshed.runs import events
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import Summary, summarise
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.foundation]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def _request(**fields: Any) -> Request:
    job = load_job({"name": "job", "command": "sleep 300"} | fields)
    return Request(job, options={"isolation": "plain"})


def _ended(run: RunDirectory) -> Summary:
    until(lambda: summarise(run).state.is_final, 60, "the end")
    return summarise(run)


def test_a_stop_before_the_driver_listens_is_not_lost() -> None:
    engine = LocalEngine()
    run = engine.submit(_request())
    engine.stop(run, "changed my mind")
    ended = _ended(run)
    assert (ended.state, ended.reason) == (RunState.STOPPED, "changed my mind")


def test_no_end_is_recorded_while_an_agent_works(monkeypatch: pytest.MonkeyPatch) -> None:
    write = LocalEngine._write

    def spoilt(self: LocalEngine, run: RunDirectory, *rest: Any) -> None:
        write(self, run, *rest)
        (run.node(1) / "agent.log").mkdir(parents=True)

    monkeypatch.setattr(LocalEngine, "_write", spoilt)
    run = LocalEngine().submit(_request(resources="2x1"))
    until(lambda: any(event.kind is Kind.FINISHED for event in run.events()), 60, "the end")
    left = [line for line in processes_of(run.id).values() if "agent.main" in line]
    ended = _ended(run)
    assert not left
    assert ended.state is RunState.FAILED and "IsADirectoryError" in ended.reason


def _driver(run: RunDirectory) -> driver.Driver:
    return driver.Driver(run, None, {})  # type: ignore[arg-type]


def test_what_an_earlier_attempt_recorded_is_not_this_ones_reason(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.node(0).mkdir()
    told = Failure(Cause.RANK, "of the first attempt")
    at = events.append(run.node_events_path(0), Kind.FAILURE, **told.to_json()).time
    driven = _driver(run)
    driven._agents = [_Ended(0, 1)]  # type: ignore[list-item]
    assert driven._outcome(0, at - 1).failure == told
    later = driven._outcome(0, at + 1).failure
    assert later and later.cause is Cause.ENGINE


class _Ended:
    """An agent that has ended, as far as the driver looks at it."""

    def __init__(self, index: int, code: int) -> None:
        self.node, self.process = self, self
        self.index, self.returncode = index, code
        self.inner: int | None = None
        self.pid = self.handle = -1


@pytest.mark.parametrize(
    ("node", "code", "missed"), [(0, 0, False), (0, 1, True), (0, -9, True), (3, 1, False), (3, -9, True)]
)
def test_the_others_are_told_of_a_lost_agent_and_of_the_coordinators_failure(
    node: int, code: int, missed: bool
) -> None:
    assert driver._is_missed(_Ended(node, code)) is missed  # type: ignore[arg-type]


def test_a_stop_has_the_reason_that_was_given_or_the_signals_name(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    driven = _driver(run)
    assert driven._heed() is None
    driven.signalled.append("SIGTERM")
    assert driven._heed() == Failure(Cause.STOP, "stopped by SIGTERM")
    run.append(Kind.STOP_REQUESTED, reason="seen enough")
    assert _driver(run)._heed() == Failure(Cause.STOP, "seen enough")


def test_keys_of_the_object_store_are_not_carried_from_node_to_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hush-hush-7718")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(LocalEngine, "_drive", lambda *_: None)
    run = LocalEngine().submit(_request(services=["ssh"], env={"WHERE": "s3://bucket/"}, resources="2x1"))
    planned = run.plan_json()["env"]["TRAINSHED_NODE_VARIABLES"].split(",")
    assert {"AWS_SECRET_ACCESS_KEY", "OBS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"} <= set(planned)
    assert b"hush-hush" not in (run.path / "plan.json").read_bytes()


@pytest.mark.parametrize(("code", "killed"), [(0, set()), (1, {102})])
def test_only_a_failure_sets_the_others_a_time_and_only_the_living_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, killed: set[int]
) -> None:
    """Of two agents the first ends at once, the second after some ticks; the time to close is up at once."""
    ends = [os.pipe(), os.pipe()]
    agents = [_Ended(1, code), _Ended(2, 0)]
    for agent, pid, (read, _) in zip(agents, (101, 102), ends, strict=True):
        agent.pid, agent.handle = pid, read
    struck: set[int] = set()
    ticks = count()

    def tick(_driver: driver.Driver) -> None:
        if next(ticks) == 3:
            os.write(ends[1][1], b"x")

    def bury(_driver: driver.Driver, agent: Any) -> None:
        os.close(agent.handle)
        agent.handle = -1

    monkeypatch.setattr(driver, "_CLOSING", -100.0)
    monkeypatch.setattr(driver, "_kill", struck.add)
    monkeypatch.setattr(driver.Driver, "_bury", bury)
    monkeypatch.setattr(driver.Driver, "_heed", tick)
    driven = driver.Driver(RunDirectory(tmp_path), SimpleNamespace(grace=0.0), {"attached": False})  # type: ignore[arg-type]
    driven._agents = agents  # type: ignore[assignment]
    os.write(ends[0][1], b"x")
    driven._watch()
    for _, write in ends:
        os.close(write)
    assert struck == killed
