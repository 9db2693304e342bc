"""Waits of drivers, starters and agents that once had no end. Limits are made short, none is measured."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import made_run, processes_of, until
from trainshed import Client, files
from trainshed.agent import handover, watch
from trainshed.engines.cluster import child, step
from trainshed.engines.cluster import driver as cluster_driver
from trainshed.engines.cluster.driver import Terms
from trainshed.engines.cluster.step import ClusterStep, Failed
from trainshed.engines.local import driver
from trainshed.engines.local.engine import ENGINE
from trainshed.engines.local.task import Task
from trainshed.engines.slurm.driver import SlurmDriver
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import AttemptFinished, AttemptStarted
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause, RunState
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.core, pytest.mark.hardening, pytest.mark.timeout(120)]
LARGE = b"x" * (4 << 20) + b"\n"
"""More than a pipe or a socket takes from somebody whom nobody reads."""


@pytest.fixture
def frozen() -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads nothing."""
    process = subprocess.Popen(["sleep", "300"], stdin=subprocess.PIPE)
    os.kill(process.pid, signal.SIGSTOP)
    yield process
    process.kill()
    process.wait()


def test_what_nobody_takes_is_given_up(frozen: subprocess.Popen[bytes]) -> None:
    assert frozen.stdin
    with pytest.raises(TimeoutError):
        files.write_within(frozen.stdin.fileno(), LARGE, 0.1)
    assert os.get_blocking(frozen.stdin.fileno())


def test_a_line_is_read_to_its_end_and_no_further() -> None:
    mine, its = socket.socketpair()
    with mine, its:
        its.sendall(b"one\ntwo\nthr")
        lines = [files.read_line(mine.fileno(), 0.1) for _ in range(3)]
        assert lines == [b"one\n", b"two\n", b""], "half a line is none"


def test_a_driver_that_is_given_no_task_ends_its_run(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    alive = files.hold(run.alive_path)
    assert alive is not None
    script = (
        "import sys; from trainshed.engines.local import driver as d; d._TASK_LIMIT = 0.2; sys.exit(d.main())"
    )
    command = [sys.executable, "-c", script, str(run.path), str(alive)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=[alive])
    try:
        assert process.wait(100) == 0
    finally:
        process.kill()
        process.communicate()
    found = Client(tmp_path).get(run.id).summary()
    assert found.state is RunState.FAILED and "the driver's task cannot be read" in found.reason


def test_an_agent_that_is_given_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, its = socket.socketpair()
    monkeypatch.setattr(handover, "_LIMIT", 0.1)
    with mine, its:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=mine.fileno))
        with pytest.raises(SystemExit, match="its driver is gone, or gave it nothing to do"):
            handover.read_handover(None)


def test_a_driver_that_does_not_take_its_task_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainshed.engines.local.engine._STARTING", 0.1)
    monkeypatch.setattr(Task, "to_line", lambda _: LARGE)
    monkeypatch.setattr(sys, "executable", "/bin/true")  # one that ends without reading
    client = Client(tmp_path / "home")
    with pytest.raises(TrainshedError, match="did not take its task"):
        client.submit({"name": "job", "command": "true"}, options={"isolation": "plain"})
    until(lambda: not list(client.summaries()), 20, "nothing is left of it")


def test_an_agent_that_outlives_the_attempts_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_AFTER_END", 0.1)
    monkeypatch.setattr(driver, "_LOOK", 0.1)
    run = made_run(tmp_path)
    run.node(0).mkdir()
    run.writer("coordinator-1").append(AttemptFinished(1, Outcome.of(None)))
    agent = subprocess.Popen(["sleep", "300"])
    mine, its = socket.socketpair()
    plan = SimpleNamespace(grace=0.0, timeout=None, run=run.id)
    driven = driver.Driver(run, plan, Task("00", {}, False, 1, "plain", "", "", (), ()))  # type: ignore[arg-type]
    driven._attempt = 1
    node = SimpleNamespace(index=0, name="n0")
    driven._agents = [driver._Agent(node, agent, mine, None, os.pidfd_open(agent.pid))]  # type: ignore[arg-type]
    monkeypatch.setattr("trainshed.agent.processes.kill_strays", lambda _: None)
    with mine, its:
        driven._watch()
    assert agent.returncode == -signal.SIGKILL


def test_even_a_starved_agent_is_given_up_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "is_starved", lambda _: True)
    killed: list[int] = []
    monkeypatch.setattr(driver._Agent, "kill", lambda agent: killed.append(agent.node.index))
    node, process = SimpleNamespace(index=3, name="n3"), SimpleNamespace(pid=1, returncode=None)
    with socket.socket() as line:
        agent = driver._Agent(node, process, line, heard=-1e9)  # type: ignore[arg-type]
        driven = driver.Driver(made_run(tmp_path), SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
        driven._end_silent([agent])
        assert killed == [], "a busy machine is forgiven"
        for _ in range(100):
            driven._end_silent([agent])
    assert killed == [3]


def test_a_launcher_that_takes_nothing_fails_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "_TAKEN", 0.1)
    made = ClusterStep(["sleep", "300"], ["a"])
    try:
        with pytest.raises(Failed, match="sleep does not pass on what nodes are told"):
            made.say(LARGE)
    finally:
        made._process.kill()
        made.close()


def test_a_step_without_its_coordinator_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0's agent killed while srun is frozen: nobody records an end, and srun would never end."""
    monkeypatch.setattr(cluster_driver, "_AFTER_END", 0.1)
    monkeypatch.setattr(cluster_driver, "_TICK", 0.05)
    run = made_run(tmp_path)
    run.node(0).mkdir()
    run.writer("driver-0").append(AttemptStarted(1))
    held = files.hold(run.node(0) / "alive.lock")
    assert held is not None
    looks: list[Path] = []

    def seen(path: Path) -> bool:
        """Held at the first look, and no more at the next."""
        looks.append(path)
        found = files.is_held(path)
        if found:
            os.close(held)
        return found

    monkeypatch.setattr(cluster_driver, "is_held", seen)
    mine = SlurmDriver(run, load_job({"name": "job", "command": "true"}), Terms(tmp_path / "scratch"), {})
    mine._attempt = 1
    assert mine._watch(ClusterStep(["cat"], ["a"]), 1.0) == 0 and len(looks) > 1


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], child.AgentProcess]:
    def made(script: str) -> child.AgentProcess:
        program = tmp_path / "agent"
        program.write_text(f"#!{sys.executable}\nimport os, sys, time\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(child.sys, "executable", str(program))
        run = RunDirectory(tmp_path / "run")
        run.path.mkdir()
        order = SimpleNamespace(attempt=1, isolation="plain", hosts="", visible=(), writable=())
        return child.AgentProcess(run, SimpleNamespace(index=0, name="n0"), order, tmp_path)  # type: ignore[arg-type]

    return made


@pytest.fixture
def given() -> Iterator[int]:
    """The other end of this process' standard input."""
    mine, its = socket.socketpair()
    kept = os.dup(0)
    os.dup2(mine.fileno(), 0)
    with mine, its:
        yield its.fileno()
        os.dup2(kept, 0)
        os.close(kept)


def test_a_starter_is_not_held_up_by_an_agent_that_does_not_read(
    starter: Callable[[str], child.AgentProcess], given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_SILENCE", 0.3)
    agent = starter("time.sleep(300)")

    def say() -> None:
        with contextlib.suppress(OSError):
            files.write_within(given, LARGE, 60)

    threading.Thread(target=say, daemon=True).start()
    assert agent.wait() == 128 + signal.SIGKILL


def test_an_agent_that_goes_on_without_its_driver_is_ended(
    starter: Callable[[str], child.AgentProcess], given: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child, "_CLOSING", 0.3)
    agent = starter("while True: os.write(0, b'.'); time.sleep(0.1)")
    socket.socket(fileno=os.dup(given)).shutdown(socket.SHUT_WR)
    assert agent.wait() == 128 + signal.SIGKILL
    (event,) = RunDirectory(tmp_path / "run").failures(attempt=1)
    assert "did not end within" in event.body.failure.reason  # type: ignore[union-attr]


def test_a_coordinator_that_is_silent_after_a_failure_is_given_up_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that told of its failure waited for the answer of a frozen coordinator."""
    link = SimpleNamespace(heard=-1e9, beat=lambda _: False, channel=None)
    node = SimpleNamespace(
        _pumped=0.0, handover=SimpleNamespace(beats=False), _link=link, _quietest=None, _failed=True,
        _abandoned=lambda how: watch.Stop(how, 5.0),
    )  # fmt: skip
    with pytest.raises(watch.Stop, match="sent nothing for"):
        watch.Watch._beat(node)  # type: ignore[arg-type]


def test_a_driver_killed_while_it_did_not_listen_is_gone_and_no_fault_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A socket whose other end had not read all is reset, not ended, when that process dies."""
    mine, its = socket.socketpair()
    told: list[Failure] = []
    node = SimpleNamespace(
        _selector=SimpleNamespace(unregister=lambda _: None),
        _coordinator=SimpleNamespace(request_stop=told.append),
    )
    with mine:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=mine.fileno))
        mine.sendall(b".")  # a sign of life that a frozen driver has not read
        its.close()
        watch.Watch._read_driver(node)  # type: ignore[arg-type]
    assert [failure.cause for failure in told] == [Cause.DRIVER]


def test_a_long_reason_to_stop_reaches_every_agent(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    run = client.submit({"name": "job", "command": "echo up; sleep 300"}, options={"isolation": "plain"})
    until(lambda: any("up" in path.read_text() for path in run.path.glob("node-0/*.log")), 60, "a rank")
    reason = "because " * 2000
    run.stop(reason)
    found = run.wait(60)
    assert found.state is RunState.STOPPED and found.reason == reason
    assert (run.path / "node-0/agent.log").read_text() == ""
    until(lambda: not processes_of(run.id), 20, "its end")
    assert not ENGINE.poll([run.directory])[run.id].alive
