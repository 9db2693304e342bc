"""The driver of a run on this machine: one process that starts the agents and records the end.

It is given its task on standard input and decides nothing about ranks. When
it is killed, the agents notice (their connection ends) and stop; when an agent
is killed, its node's process namespace dies with it. An agent that is silent
or does not end in time is killed: every wait here has an end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from trainshed import files
from trainshed.agent import homes, processes, sandbox
from trainshed.agent.handover import Handover
from trainshed.agent.processes import is_starved
from trainshed.agent.reports import FOLDER as REPORTS
from trainshed.engines.cluster import containers, guard, nodes
from trainshed.engines.cluster.child import STARVED
from trainshed.engines.local.task import Task
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, Plan
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import AttemptStarted, Note
from trainshed.runs.logs import tail
from trainshed.runs.outcome import Failure, Outcome, describe_exit
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import is_queued

_WRITER = "driver-1"
_CLOSING = 3600.0
"""The longest an agent may take to save outputs after the run was stopped."""
_AFTER_END = 15.0
"""Seconds an agent may live on once the coordinator has recorded the end of the attempt."""
_SILENCE = 60.0
"""Seconds without a message from an agent that is not waiting for the processor, until it is declared lost."""
_OVERTIME = 30.0
"""Seconds after a job's own timeout until the driver keeps it, if the coordinator did not."""
_TASK_LIMIT = 120.0
"""Seconds for whoever submitted the run to hand over its task."""
_LOOK = 2.0
"""Seconds between two looks at whether the coordinator has recorded the end of the attempt."""
_TICK = 0.2


@dataclass
class _Agent:
    node: NodePlan
    process: subprocess.Popen[bytes]
    line: socket.socket
    info: IO[bytes] | None = None
    """Where bubblewrap writes the number of the namespace's first process."""
    handle: int = -1
    """Readable once it has ended; -1 once it was seen to."""
    heard: float = field(default_factory=time.monotonic)
    forgiven: float = 0.0
    """Seconds of silence that do not count, since it waited for the processor."""
    why_killed: str = ""

    @property
    def first_process(self) -> int | None:
        """The first process of the node's namespace, as this machine counts."""
        if self.info is None:
            return None
        try:
            self.info.seek(0)
            return int(json.loads(self.info.read())["child-pid"])
        except (ValueError, KeyError, OSError):
            return None

    def kill(self) -> None:
        _kill(self.first_process or self.process.pid)
        _kill(self.process.pid)


@dataclass
class Driver:
    """Runs the attempts of one run."""

    run: RunDirectory
    plan: Plan
    task: Task
    signalled: list[str] = field(default_factory=list)
    """Stop signals this process received."""
    _stop: Failure | None = None
    _agents: list[_Agent] = field(default_factory=list)
    _attempt: int = 0

    def drive(self) -> Outcome:
        processes.adopt_orphans()
        self.run.reserve()
        outcome = Outcome(RunState.LOST, RunState.LOST.exit_code)
        for attempt in range(1, self.task.attempts + 1):
            if stop := self._stop_requested():
                return Outcome.of(stop)
            outcome = nodes.explained(self.run, self._try(attempt))
            failure = outcome.failure
            if self._stop or failure is None or not failure.cause.is_retried:
                break
        return outcome

    def _stop_requested(self) -> Failure | None:
        """Why the run must end, if a stop was requested, also before this driver started."""
        if self._stop is None:
            reason = self.run.stop_reason() or "".join(f"stopped by {name}" for name in self.signalled[:1])
            self._stop = Failure(Cause.STOP, reason) if reason else None
        return self._stop

    def _try(self, attempt: int) -> Outcome:
        self._attempt = attempt
        self.run.writer(_WRITER).append(AttemptStarted(attempt))
        try:
            self._start()
            self._watch()
        except Exception as error:
            # No end may be recorded while agents still work.
            self._stop = Failure(Cause.ENGINE, f"the driver failed: {error!r}")
            self._watch()
            raise
        return self._outcome()

    def _start(self) -> None:
        scratch = Path(self.task.scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        hosts = scratch / "hosts"
        hosts.write_text(self.plan.hosts_file)
        self._agents = []
        for node in self.plan.nodes:
            self.run.node(node.index).mkdir(exist_ok=True)
            self._start_agent(node, scratch / f"node-{node.index}", hosts)

    def _start_agent(self, node: NodePlan, scratch: Path, hosts: Path) -> None:
        argv = [sys.executable, "-m", "trainshed.agent.main"]
        argv += ["--run", str(self.run.path), "--node", str(node.index)]
        handover = Handover(
            secret=self.task.secret,
            attempt=self._attempt,
            secrets=self.task.secrets,
            cache=self.task.cache,
            beats=True,
        )
        if self.task.isolation == "container":
            handover = replace(handover, prefix=self._entrance(node, scratch, hosts), root=str(scratch))
        elif self.task.isolation == "sandbox":
            handover = replace(handover, hidden=(str(self.run.path), self.task.cache))
        # Held for the agent from before its start, so that it is never taken for dead.
        alive = files.hold(self.run.node(node.index) / "alive.lock")
        if alive is None:
            raise RuntimeError(f"an agent of node {node.index} is still alive")
        mine, its = socket.socketpair()
        info: IO[bytes] | None = None
        try:
            inherited = [alive]
            if self.task.isolation == "sandbox":
                # A file, not a pipe: bubblewrap must not die of the driver's death while it starts.
                info = tempfile.TemporaryFile(dir=scratch.parent)  # noqa: SIM115 (kept with the agent)
                inherited.append(info.fileno())
                shown = sandbox.Enclosure(
                    hosts, scratch, self.task.visible, self.task.writable, str(self.run.home)
                )
                argv = sandbox.enclose(node, shown, argv, info.fileno())
            with (self.run.node(node.index) / "agent.log").open("ab") as log:
                process = subprocess.Popen(
                    argv,
                    stdin=its.fileno(),
                    stdout=log,
                    stderr=log,
                    pass_fds=inherited,
                    start_new_session=True,
                )
        finally:
            its.close()
            os.close(alive)
        agent = _Agent(node, process, mine, info, os.pidfd_open(process.pid))
        self._agents.append(agent)
        with contextlib.suppress(OSError):  # its silence, or its end, will be noticed
            files.write_within(mine.fileno(), handover.to_line(), _SILENCE)
        mine.setblocking(False)

    def _watch(self) -> None:
        """Wait until all agents have ended; passes a stop on; has an end whatever goes wrong."""
        living = [agent for agent in self._agents if agent.handle >= 0]
        selector = selectors.DefaultSelector()
        for agent in living:
            selector.register(agent.handle, selectors.EVENT_READ, agent)
            selector.register(agent.line, selectors.EVENT_READ, agent)
        if self.task.attached:
            selector.register(sys.stdin, selectors.EVENT_READ, None)
        began, deadline, stop_sent = time.monotonic(), None, False
        looked = began
        while living:
            wrong = False
            for key, _ in selector.select(_TICK):
                agent = key.data
                if agent is None:
                    selector.unregister(key.fileobj)
                    self._stop = self._stop or Failure(Cause.STOP, "the foreground command is gone")
                elif key.fileobj is agent.line:
                    if not _read_beat(agent):
                        selector.unregister(agent.line)
                elif agent in living:
                    living.remove(agent)
                    selector.unregister(agent.handle)
                    self._reap(agent)
                    if agent.process.returncode != 0:
                        wrong = True
                        self._tell(self._lost(agent))
                    if agent.node.index == 0 or nodes.recorded_outcome(self.run, self._attempt):
                        # Agents that are left were given up by the coordinator, or have nothing to wait for.
                        deadline = _earlier(deadline, self.plan.grace + _AFTER_END)
            if deadline is None and time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                if nodes.recorded_outcome(self.run, self._attempt):
                    # Its coordinator has done with all nodes: an agent that hangs now would hang for ever.
                    deadline = _earlier(deadline, self.plan.grace + _AFTER_END)
            if not stop_sent and (stop := self._stop_requested() or self._overtime(began)):
                stop_sent = wrong = True
                self._tell(stop)
            if wrong:
                deadline = _earlier(deadline, self.plan.grace + _CLOSING)
            if len(self.run.stop_requests()) > 1 or len(self.signalled) > 1:
                deadline = _earlier(deadline, self.plan.grace)
            self._end_silent(living)
            if deadline and time.monotonic() > deadline:
                for agent in living:
                    agent.kill()
        selector.close()

    def _overtime(self, began: float) -> Failure | None:
        """The job's own timeout, kept here if the coordinator cannot."""
        timeout = self.plan.timeout
        if timeout is None or time.monotonic() - began < timeout + self.plan.grace + _OVERTIME:
            return None
        self._stop = Failure(Cause.TIMEOUT, f"not finished within its timeout of {timeout:g} s")
        return self._stop

    def _end_silent(self, living: list[_Agent]) -> None:
        """Kill agents that say nothing although they could: a frozen one would hold the run forever."""
        now = time.monotonic()
        for agent in living:
            if now - agent.heard <= _SILENCE + agent.forgiven:
                continue
            if agent.forgiven < STARVED and is_starved(agent.first_process or agent.process.pid):
                agent.forgiven += _SILENCE / 2  # time that the machine did not give it does not count
                continue
            agent.why_killed = f"no message from its agent for {_SILENCE:.0f} s"
            self._tell(self._lost(agent))
            agent.kill()
            agent.heard = float("inf")

    def _entrance(self, node: NodePlan, scratch: Path, hosts: Path) -> tuple[str, ...]:
        """What stands before a process' own command line. The variables' names follow when it is started."""
        mounts = [(str(hosts), "/etc/hosts:ro"), (containers.PACKAGE, f"{containers.PACKAGE}:ro")]
        reports = self.run.node(node.index) / REPORTS
        reports.mkdir(exist_ok=True)
        mounts.append((str(reports), str(reports)))
        homes.prepare(node, scratch)
        for seen, folder in node.private:
            (scratch / folder).mkdir(parents=True, exist_ok=True)
            mounts.append((str(scratch / folder), seen))
        label = containers.label_of(self.plan.run, node.index)
        return (*containers.start(containers.tool() or "podman", label, mounts), "--hostname", node.name[:63])

    def _reap(self, agent: _Agent) -> None:
        agent.process.wait()
        os.close(agent.handle)
        agent.handle = -1
        if agent.process.returncode != 0 and (first := agent.first_process) is not None:
            # bubblewrap itself may have been killed while its namespace lives on.
            _kill(first)
        # What an agent leaves behind comes to the driver: ranks where no namespace dies with it,
        # and bubblewrap's own child when bubblewrap is killed before it has reported it.
        processes.kill_strays({item.process.pid for item in self._agents})
        if self.task.isolation == "container":
            containers.remove(containers.label_of(self.plan.run, agent.node.index))

    def _tell(self, failure: Failure) -> None:
        """To every agent: node 0's makes it the run's end, the others wait for its message, but not forever."""
        line = json.dumps({"cause": failure.cause.value, "reason": failure.reason}).encode() + b"\n"
        for agent in self._agents:
            self._send(agent, line)

    def _send(self, agent: _Agent, line: bytes) -> None:
        with contextlib.suppress(OSError):
            agent.line.sendall(line)

    def _outcome(self) -> Outcome:
        """The coordinator's outcome; without it that of a stop, how agents died, or what one of them recorded."""
        if outcome := nodes.recorded_outcome(self.run, self._attempt):
            return outcome
        if self._stop:
            return Outcome.of(self._stop)
        for agent in self._agents:
            if agent.process.returncode not in (0, 1):
                return Outcome.of(self._lost(agent))
        if failure := nodes.first_failure(self.run, self._attempt):
            return Outcome.of(failure)
        for agent in self._agents:
            if agent.process.returncode:
                return Outcome.of(self._lost(agent))
        reason = "the agents ended without recording why"
        return Outcome.of(Failure(Cause.ENGINE, reason, 0, log="node-0/agent.log"))

    def _lost(self, agent: _Agent) -> Failure:
        """Why a node is gone: what its agent recorded, or how it ended with its last lines."""
        node, code = agent.node, agent.process.returncode
        for event in self.run.failures(self._attempt):
            if event.writer == f"node-{node.index}-{self._attempt}":
                return event.body.failure  # type: ignore[union-attr]
        how = agent.why_killed or f"its agent {describe_exit(code if code < 128 else 128 - code)}"
        lines = tail(self.run.node(node.index) / "agent.log", 5) if code == 1 else ()
        reason = f"node {node.index} ({node.name}) was lost: {how}"
        if lines:
            reason += f": {lines[-1][:300]}"
        log = f"node-{node.index}/agent.log"
        return Failure(Cause.NODE, reason, node.index, log=log, last_lines=lines)


def _earlier(deadline: float | None, seconds: float) -> float:
    wanted = time.monotonic() + seconds
    return wanted if deadline is None else min(deadline, wanted)


def _read_beat(agent: _Agent) -> bool:
    """Note a sign of life; False once there will be no more."""
    try:
        data = agent.line.recv(4096)
    except BlockingIOError:
        return True
    except OSError:
        return False
    if data:
        agent.heard, agent.forgiven = time.monotonic(), 0.0
    return bool(data)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run = RunDirectory(Path(sys.argv[1]))
    guard.stand_by()
    signalled: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda found, _frame: signalled.append(signal.Signals(found).name))
    line = files.read_line(sys.stdin.fileno(), _TASK_LIMIT)
    if not line and is_queued(run):
        return 0  # whoever launched it was killed meanwhile: it still waits in its queue
    # Only now may others find out whom to signal; until now they knew the guard's number alone.
    os.truncate(run.alive_path, 0)
    os.pwrite(int(sys.argv[2]), f"{os.getpid()} {os.getppid()}".encode(), 0)
    try:
        outcome = _drive(run, line, signalled)
    except Exception as error:  # a mistake of ours: the run must still end and say so
        traceback.print_exc()
        message = error.message if isinstance(error, TrainshedError) else repr(error)
        reason = f"the driver failed: {message} (see driver.log)"
        outcome = Outcome.of(Failure(Cause.ENGINE, reason, log="driver.log"))
    nodes.record_end(run, outcome)
    guard.wake(os.getppid())  # frozen, it would not see this end
    return 0


def _drive(run: RunDirectory, line: bytes, signalled: list[str]) -> Outcome:
    task = Task.from_line(line)
    plan = Plan.from_json(run.plan_json())
    try:
        return Driver(run, plan, task, signalled).drive()
    finally:
        if task.isolation == "plain":
            for node in plan.nodes:
                homes.take(node)
        if any(run.is_unsaved(index) for index in run.node_indexes()):
            run.writer(_WRITER).append(Note(f"outputs that could not be saved are in {task.scratch}"))
        else:
            shutil.rmtree(task.scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
