"""A node that saves its work stays in reach to the last, and says what it could not save."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.agent import main, processes
from trainshed.agent.handover import Handover
from trainshed.agent.main import Agent
from trainshed.plan.model import NodePlan, Plan, ProcessPlan, Transfer
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import FailureSeen, Note, ProcessExited

pytestmark = [pytest.mark.foundation, pytest.mark.core, pytest.mark.hardening]


def node_plan(folder: Path) -> NodePlan:
    return NodePlan(
        index=0,
        name="worker-0",
        address="127.0.0.1",
        coordinator=("127.0.0.1", 0),
        work_dir=str(folder),
        private=(),
        env={},
        files=(),
        code=None,
        inputs=(),
        outputs=(Transfer("out", str(folder / "out"), ""),),
        pre_start=(),
        processes=(),
        log=Transfer("log", "joined.log", str(folder / "logs"), 60.0),
    )


def plan_of(run: RunDirectory, node: NodePlan) -> Plan:
    return Plan(
        run=run.id,
        launcher="command",
        contract="plain",
        kind="cpu",
        emulated=False,
        isolated=False,
        size=1,
        image=None,
        env={},
        files=(),
        hosts=(),
        secrets=(),
        grace=1.0,
        timeout=None,
        memory=None,
        notes=(),
        nodes=(node,),
    )


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    (run,) = Runs(tmp_path / "runs").create("job")
    node = node_plan(tmp_path)
    monkeypatch.setattr(processes, "stop_all", lambda *_: None)
    return Agent(run, plan_of(run, node), node, Handover(secret="00"))


def needs_pumping(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Work that ends only when the agent looks after everything else meanwhile."""
    pumped = threading.Event()

    def pump(_wait: float) -> None:
        pumped.set()

    def work(*_: object) -> str:
        pumped.clear()
        assert pumped.wait(5), "nobody looked after the node"
        return ""

    monkeypatch.setattr(agent, "_pump_quietly", pump)
    return work


def test_a_node_stays_in_reach_through_every_step_of_its_end(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = needs_pumping(agent, monkeypatch)
    monkeypatch.setattr(agent, "_settle_logs", work)
    monkeypatch.setattr(agent._uploads, "stop", work)
    monkeypatch.setattr(agent._uploads, "save_all", work)
    monkeypatch.setattr(agent._joined, "finish", work)
    assert agent._close() == 0
    assert not [e for e in agent.run.events() if isinstance(e.body, Note)]


@pytest.mark.parametrize("error", [OSError("the disk is made of cheese"), ZeroDivisionError("cheese")])
def test_whatever_prevents_saving_is_told_and_the_outputs_stay(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(agent._uploads, "save_all", fail)
    assert agent._close() == 1
    assert agent.run.is_unsaved(0)
    (seen,) = (e.body for e in agent.run.events("node-0-") if isinstance(e.body, FailureSeen))
    assert "cheese" in seen.failure.reason and "node 0 (worker-0)" in seen.failure.reason


def test_node_0_stays_for_as_long_as_its_coordinator(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    class Serving:
        rounds = 0

        def is_alive(self) -> bool:
            return self.rounds < 3

    def pump(_wait: float) -> None:
        serving.rounds += 1

    serving = Serving()
    agent._coordinator = serving  # type: ignore[assignment]
    monkeypatch.setattr(agent, "_pump_quietly", pump)
    agent._leave()
    assert serving.rounds == 3


def test_the_end_of_a_process_that_dies_late_is_recorded_before_the_heads_are_sent(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper outlives `stop_all` (here nobody ends it): what it adds to the record must be in the chain."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(agent, "_send_quietly", sent.append)
    monkeypatch.setattr(main, "_COLLECTED", 100.0)
    agent.run.node(0).joinpath("helpers").mkdir(parents=True)
    helper = ProcessPlan("scheduler", ("/bin/sh", "-c", "sleep 1"), str(tmp_path), helper=True)
    agent._start(helper, {"PATH": os.environ["PATH"]})
    assert agent._close() == 0
    (ended,) = (e.body for e in agent.run.events("node-0-") if isinstance(e.body, ProcessExited))
    assert (ended.process, ended.returncode) == ("scheduler", 0)
    heads = {
        name: head
        for message in sent
        if message["type"] == "heads"
        for name, head in message["heads"].items()
    }
    name = "events/node-0-1.jsonl"
    data = (agent.run.path / name).read_bytes()
    assert heads[name] == [len(data), hashlib.sha256(data).hexdigest()]
