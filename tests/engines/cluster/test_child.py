"""The agent as a child of its starter: what the driver says reaches it, and one that hangs is ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainshed.engines.cluster import child
from trainshed.engines.cluster.order import Order
from trainshed.plan.model import NodePlan, Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import FailureSeen
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm, pytest.mark.core, pytest.mark.hardening]


@pytest.fixture
def driver() -> Iterator[int]:
    """The other end of this process' standard input."""
    mine, its = os.pipe()
    kept = os.dup(0)
    os.dup2(mine, 0)
    os.close(mine)
    try:
        yield its
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], child.AgentProcess]:
    """An agent that is a few lines of Python instead."""

    def made(script: str) -> child.AgentProcess:
        program = tmp_path / "agent"
        program.write_text(f"#!{sys.executable}\nimport os, sys, time\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(child.sys, "executable", str(program))
        run = RunDirectory(tmp_path / "run")
        run.path.mkdir()
        order = Order(2, "plain", str(tmp_path), (), (), "127.0.0.1 localhost\n")
        return child.AgentProcess(run, _node(), order, tmp_path)

    return made


def _node() -> NodePlan:
    job = load_job({"name": "job", "command": "true"})
    hosts = [Host("n0", "127.0.0.1", (Device(0),), 10241)]
    planned: Plan = plan(
        job, Topology.of(DeviceKind.CPU, hosts), Site("python3", "/usr/bin", "/scratch", "/lib"), "run"
    )
    return planned.nodes[0]


def test_an_agent_that_hangs_is_killed_and_the_reason_recorded(
    start: Callable[[str], child.AgentProcess], driver: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_SILENCE", 0.5)
    assert start("os.write(0, b'.'); time.sleep(300)").wait() == 128 + 9
    (event,) = RunDirectory(tmp_path / "run").failures(attempt=2)
    assert isinstance(event.body, FailureSeen)
    assert "node 0 (n0) was lost: no message from its agent" in event.body.failure.reason
    os.close(driver)


def test_one_that_shows_signs_of_life_is_left_alone(
    start: Callable[[str], child.AgentProcess], driver: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_SILENCE", 2.0)
    assert start("for _ in range(30): os.write(0, b'.'); time.sleep(0.1)\nsys.exit(7)").wait() == 7
    os.close(driver)


def test_what_the_driver_says_arrives_and_so_does_its_end(
    start: Callable[[str], child.AgentProcess], driver: int, tmp_path: Path
) -> None:
    agent = start(f"open({str(tmp_path / 'heard')!r}, 'wb').write(sys.stdin.buffer.read())")
    os.write(driver, b"a word\n" * 3)
    os.close(driver)
    assert agent.wait() == 0
    assert (tmp_path / "heard").read_bytes() == b"a word\n" * 3


def test_a_process_that_computes_is_starved_and_one_that_sleeps_is_not(
    start: Callable[[str], child.AgentProcess], driver: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_SILENCE", 0.3)
    mark = tmp_path / "enough"
    script = f"import threading\nthreading.Timer(2, lambda: open({str(mark)!r}, 'w')).start()\n"
    script += f"while not os.path.exists({str(mark)!r}): pass"
    assert start(script).wait() == 0, "a busy machine is not a hung agent"
    os.close(driver)
