"""The driver of a run on this machine: one process that starts the agents and records the end.

It is given its task on standard input and decides nothing about ranks. When
it is killed, the agents notice (their standard input ends) and stop; when an
agent is killed, its node's process namespace dies with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainshed.agent import processes, sandbox
from trainshed.agent.handover import Handover
from trainshed.engines import _containers as containers
from trainshed.engines._driving import coordinators_word, first_failure, record_end, stop_reason
from trainshed.plan.model import NodePlan, Plan
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.outcome import Failure, Outcome, words_of
from trainshed.runs.states import Cause, RunState

_CLOSING = 3600.0
"""The longest an agent may take to save outputs after another has died."""


@dataclass
class _Agent:
    node: NodePlan
    process: subprocess.Popen[bytes]
    inner: int | None = None
    """The first process of the node's namespace, as this machine counts."""
    handle: int = -1
    """Readable once it has ended; -1 once it was seen to."""


@dataclass
class Driver:
    """Brings one run through its attempts."""

    run: RunDirectory
    plan: Plan
    task: dict[str, Any]
    signalled: list[str] = field(default_factory=list)
    """Signals that told this process to stop."""
    _stop: Failure | None = None
    _agents: list[_Agent] = field(default_factory=list)

    def drive(self) -> Outcome:
        processes.adopt_orphans()
        outcome = Outcome(RunState.LOST, RunState.LOST.exit_code)
        for attempt in range(1, int(self.task["attempts"]) + 1):
            if stop := self._heed():
                return Outcome.of(stop)
            outcome = self._try(attempt)
            failure = outcome.failure
            if self._stop or failure is None or not failure.cause.is_retried:
                break
        return outcome

    def _heed(self) -> Failure | None:
        """Why the run must end, if somebody said so, also before this driver could hear it."""
        if self._stop is None:
            reason = stop_reason(self.run) or "".join(f"stopped by {name}" for name in self.signalled[:1])
            self._stop = Failure(Cause.STOP, reason) if reason else None
        return self._stop

    def _try(self, attempt: int) -> Outcome:
        self.run.append(Kind.ATTEMPT, attempt=attempt)
        began, since = len(list(self.run.events())), time.time()
        try:
            self._start(attempt)
            self._watch()
        except Exception as error:
            # No end may be recorded while agents still work.
            self._stop = Failure(Cause.ENGINE, f"the driver cannot go on: {error!r}")
            self._watch()
            raise
        return self._outcome(began, since)

    def _start(self, attempt: int) -> None:
        scratch = Path(self.task["scratch"])
        scratch.mkdir(parents=True, exist_ok=True)
        hosts = scratch / "hosts"
        hosts.write_text(self.plan.hosts_file)
        self._agents = []
        for node in self.plan.nodes:
            self.run.node(node.index).mkdir(exist_ok=True)
            self._start_agent(node, scratch / f"node-{node.index}", hosts, attempt)

    def _start_agent(self, node: NodePlan, scratch: Path, hosts: Path, attempt: int) -> None:
        argv = [
            sys.executable,
            "-m",
            "trainshed.agent.main",
            "--run",
            str(self.run.path),
            "--node",
            str(node.index),
        ]
        isolation = self.task["isolation"]
        given = Handover(
            secret=self.task["secret"],
            attempt=attempt,
            secrets=self.task["secrets"],
            cache=self.task["cache"],
        )
        if isolation == "container":
            given = replace(given, prefix=self._entrance(node, scratch, hosts), root=str(scratch))
        read, write = os.pipe()
        with os.fdopen(read, "rb") as info:
            with os.fdopen(write, "wb"), (self.run.node(node.index) / "agent.log").open("ab") as log:
                if isolation == "sandbox":
                    shown = sandbox.Enclosure(
                        hosts, scratch, tuple(self.task["visible"]), tuple(self.task["writable"])
                    )
                    argv = sandbox.enclose(node, shown, argv, write)
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=(write,),
                    start_new_session=True,
                )
            agent = _Agent(node, process, handle=os.pidfd_open(process.pid))
            self._agents.append(agent)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(given.to_line())
                process.stdin.flush()
            if isolation == "sandbox":
                agent.inner = _inner(info.fileno())

    def _watch(self) -> None:
        """Until all agents have ended; told to stop, pass it on; bounded once something went wrong."""
        living = [agent for agent in self._agents if agent.handle >= 0]
        selector = selectors.DefaultSelector()
        for agent in living:
            selector.register(agent.handle, selectors.EVENT_READ, agent)
        if self.task["attached"]:
            selector.register(sys.stdin, selectors.EVENT_READ, None)
        deadline, told = None, False
        while living:
            wrong = False
            for key, _ in selector.select(0.2):
                selector.unregister(key.fileobj)
                if key.data is None:
                    self._stop = self._stop or Failure(Cause.STOP, "the command that ran it is gone")
                    continue
                living.remove(key.data)
                self._bury(key.data)
                wrong |= key.data.process.returncode != 0
                if _is_missed(key.data):
                    self._tell(_lost(key.data))
            if not told and (stop := self._heed()):
                told = wrong = True
                self._tell(stop)
            if wrong and deadline is None:
                deadline = time.monotonic() + self.plan.grace + _CLOSING
            if deadline and time.monotonic() > deadline:
                for agent in living:
                    _kill(agent.inner or agent.process.pid)
        selector.close()

    def _entrance(self, node: NodePlan, scratch: Path, hosts: Path) -> tuple[str, ...]:
        """What stands before a process' own command line. The variables' names follow when it is started."""
        mounts = [(str(hosts), "/etc/hosts:ro"), (containers.PACKAGE, f"{containers.PACKAGE}:ro")]
        mounts.append((str(self.run.path), str(self.run.path)))
        for seen, folder in node.private:
            (scratch / folder).mkdir(parents=True, exist_ok=True)
            mounts.append((str(scratch / folder), seen))
        label = containers.label_of(self.plan.run, node.index)
        return (*containers.start(containers.tool() or "podman", label, mounts), "--hostname", node.name[:63])

    def _bury(self, agent: _Agent) -> None:
        agent.process.wait()
        os.close(agent.handle)
        agent.handle = -1
        if agent.inner is not None and agent.process.returncode != 0:
            # bubblewrap itself may have been killed while its namespace lives on.
            _kill(agent.inner)
        # What an agent leaves behind comes to the driver: ranks where no namespace dies with it,
        # and bubblewrap's own child when bubblewrap is killed before it has told of it.
        processes.kill_strays({item.process.pid for item in self._agents})
        if self.task["isolation"] == "container":
            containers.remove(containers.label_of(self.plan.run, agent.node.index))
        with contextlib.suppress(BrokenPipeError, OSError):
            assert agent.process.stdin is not None
            agent.process.stdin.close()

    def _tell(self, failure: Failure) -> None:
        """To every agent: node 0's makes it the run's end, the others wait for its word, but not for ever."""
        line = json.dumps({"cause": failure.cause.value, "reason": failure.reason}).encode() + b"\n"
        for agent in self._agents:
            with contextlib.suppress(BrokenPipeError, OSError, ValueError):
                assert agent.process.stdin is not None
                agent.process.stdin.write(line)
                agent.process.stdin.flush()

    def _outcome(self, began: int, since: float) -> Outcome:
        """The coordinator's word; without it a stop's, how agents died, or what one of them recorded."""
        if word := coordinators_word(self.run, began):
            return word
        if self._stop:
            return Outcome.of(self._stop)
        for agent in self._agents:
            if agent.process.returncode not in (0, 1):
                return Outcome.of(_lost(agent))
        if failure := first_failure(self.run, (agent.node.index for agent in self._agents), since):
            return Outcome.of(failure)
        return Outcome.of(Failure(Cause.ENGINE, "the agents ended without a word", 0, log="node-0/agent.log"))


def _is_missed(agent: _Agent) -> bool:
    """Whether others must be told of its end: it was lost, or took with it what coordinates them."""
    return agent.process.returncode not in ((0, 1) if agent.node.index else (0,))


def _lost(agent: _Agent) -> Failure:
    node, code = agent.node, agent.process.returncode
    how = words_of(code if code < 128 else 128 - code)
    reason = f"node {node.index} ({node.name}) was lost: its agent {how}"
    return Failure(Cause.NODE, reason, node.index, log=f"node-{node.index}/agent.log")


def _inner(read: int) -> int | None:
    """What bubblewrap says of the process it started, within five seconds."""
    data = b""
    deadline = time.monotonic() + 5.0
    try:
        while b"}" not in data and (left := deadline - time.monotonic()) > 0:
            if not select.select([read], [], [], left)[0]:
                break
            piece = os.read(read, 4096)
            if not piece:
                break
            data += piece
        found = json.loads(data)["child-pid"]
        return int(found)
    except (ValueError, KeyError):
        return None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def main() -> int:
    run = RunDirectory(Path(sys.argv[1]))
    signalled: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda found, _frame: signalled.append(signal.Signals(found).name))
    # Only now may others find out whom to signal.
    os.truncate(run.alive_path, 0)
    os.write(int(sys.argv[2]), str(os.getpid()).encode())
    task = json.loads(sys.stdin.buffer.readline())
    try:
        outcome = Driver(run, Plan.from_json(run.plan_json()), task, signalled).drive()
    except Exception as error:  # a mistake of ours: the run must still end and say so
        traceback.print_exc()
        reason = f"the driver cannot go on: {error!r} (see driver.log)"
        outcome = Outcome.of(Failure(Cause.ENGINE, reason, log="driver.log"))
    if any(run.is_unsaved(index) for index in run.node_indexes()):
        run.append(Kind.NOTE, text=f"outputs that could not be saved lie in {task['scratch']}")
    else:
        shutil.rmtree(task["scratch"], ignore_errors=True)
    record_end(run, outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
