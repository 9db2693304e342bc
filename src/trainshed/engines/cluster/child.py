"""The agent of a node as a child of the process that started it there: its line to the driver, and its end if it hangs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from trainshed import files
from trainshed.agent import environment, sandbox
from trainshed.agent.processes import is_starved
from trainshed.engines.cluster.order import Order
from trainshed.plan.model import NodePlan
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import FailureSeen
from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause

_SILENCE = 60.0
"""Seconds without a sign of life from an agent that is not waiting for the processor, until it is killed."""
STARVED = 900.0
"""The most seconds of silence that are forgiven to an agent that waits for the processor or the disk."""
_CLOSING = 3600.0
"""The longest an agent may take to end once its driver is gone."""
_TICK = 0.5
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class AgentProcess:
    """An agent that was started here, enclosed where that works."""

    def __init__(self, run: RunDirectory, node: NodePlan, order: Order, scratch: Path) -> None:
        self._run, self._node, self._order = run, node, order
        self._input_ended = False
        argv = [sys.executable, "-m", "trainshed.agent.main"]
        argv += ["--run", str(run.path), "--node", str(node.index)]
        hosts = scratch / "hosts"
        hosts.write_text(order.hosts)
        self._line, its = socket.socketpair()
        run.node(node.index).mkdir(exist_ok=True)
        log_path = run.node(node.index) / "agent.log"
        with open(os.devnull, "wb") as nowhere, its, log_path.open("ab") as log:
            if order.isolation == "sandbox":
                shown = sandbox.Enclosure(hosts, scratch, order.visible, order.writable, str(run.home))
                argv = sandbox.enclose(node, shown, argv, nowhere.fileno())
                argv.insert(1, "--die-with-parent")
            # A session of its own: a cluster signals process groups, and bubblewrap would not survive that.
            self._process = subprocess.Popen(
                argv,
                stdin=its.fileno(),
                stdout=log,
                stderr=log,
                pass_fds=(nowhere.fileno(),),
                start_new_session=True,
                preexec_fn=_prepare,
                env=environment.clean(os.environ),
            )
        self._handle = os.pidfd_open(self._process.pid)
        self._heard, self._forgiven = time.monotonic(), 0.0
        self._ends_by = float("inf")

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._inner(), number)

    def wait(self) -> int:
        """Until it has ended: what the driver says is passed on, and one that hangs is killed."""
        while self._process.poll() is None:
            self._relay()
            if time.monotonic() - self._heard > _SILENCE + self._forgiven:
                self._end_if_hung()
            elif time.monotonic() > self._ends_by:
                self._kill(f"its agent did not end within {_CLOSING:.0f} s after its driver")
        os.close(self._handle)
        self._line.close()
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def _inner(self) -> int:
        """The agent itself: bubblewrap passes no signal on to what it encloses, which is its only child."""
        enclosed = _first_child(self._process.pid) if self._order.isolation == "sandbox" else None
        return enclosed or self._process.pid

    def _relay(self) -> None:
        sources: list[int] = [self._line.fileno(), self._handle, *(() if self._input_ended else (0,))]
        ready = select.select(sources, [], [], _TICK)[0]
        with contextlib.suppress(OSError):
            if 0 in ready:
                data = os.read(0, 1 << 16)
                if data:
                    files.write_within(self._line.fileno(), data, _SILENCE)
                else:
                    self._input_ended, self._ends_by = True, time.monotonic() + _CLOSING
                    self._line.shutdown(socket.SHUT_WR)  # by which the agent knows that the driver is gone
            if self._line.fileno() in ready and self._line.recv(1 << 12):
                self._heard, self._forgiven = time.monotonic(), 0.0

    def _end_if_hung(self) -> None:
        if self._forgiven < STARVED and is_starved(self._inner()):
            # Time that the machine did not give it does not count.
            self._forgiven += _SILENCE / 2
            return
        self._kill(f"no message from its agent for {_SILENCE:.0f} s")

    def _kill(self, why: str) -> None:
        index, attempt = self._node.index, self._order.attempt
        reason = f"node {index} ({self._node.name}) was lost: {why}"
        failure = Failure(Cause.NODE, reason, index, log=f"node-{index}/agent.log")
        self.signal(signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        # The agent's own file: it has no other writer any more.
        self._run.node_writer(index, attempt).append(FailureSeen(attempt, failure))


def _first_child(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    except (OSError, IndexError):
        return None


def _prepare() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # A cluster may signal every process of a job. bubblewrap, killed, would take its node with it at once;
    # the agent sets its own handlers, and its ranks start with the usual ones.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
