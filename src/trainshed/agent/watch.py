"""What an agent watches: its processes, its driver, its coordinator, and its node's memory.

One loop (`_pump`) looks after all of them; slow work is done in a thread while
the loop goes on, so that a node is never out of reach. The first bad news is
recorded and reported to the coordinator, whose answer ends the work with `Stop`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from trainshed import files
from trainshed.agent import environment, processes
from trainshed.agent.coordinator import Coordinator, Limits
from trainshed.agent.handover import Handover
from trainshed.agent.heads import HeadKeeper
from trainshed.agent.link import Link
from trainshed.agent.metering import NodeMeter
from trainshed.agent.ssh import Card
from trainshed.agent.wire import AgentConnectionError
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, Plan, ProcessPlan
from trainshed.runs.chain import NONCE_LABEL, ChainWriter, path_of
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import FailureSeen, PhaseFinished, ProcessExited, UnreadableRunError
from trainshed.runs.last_lines import last_lines
from trainshed.runs.logs import tail
from trainshed.runs.logtimes import LogTimes, last_written
from trainshed.runs.outcome import Failure, describe_exit, exit_code_of
from trainshed.runs.progress import ProgressFile
from trainshed.runs.states import Cause
from trainshed.spec.kinds import DeviceKind

_SILENCE = 30.0
"""Seconds without a message from the coordinator after which a node gives up."""
_SIGN = 1.0
"""Seconds between two signs of life for the process that started the agent."""
_STALL = 2.0
"""Seconds between two looks at the clock from which on this process itself was held up."""
_SEARCHED = 2000
"""Lines at the end of a command's log among which the failing rank's are looked for."""
_ORPHANED = 3.0
"""Seconds an agent without a driver waits for the coordinator before it stops by itself."""


class Stop(Exception):
    """The run ends here: something failed, or a stop was requested."""

    def __init__(self, reason: str, grace: float, is_wanted: bool = False) -> None:
        """`is_wanted`: nothing failed by itself; a person or the job's time limit ends it."""
        super().__init__(reason)
        self.grace, self.is_wanted = grace, is_wanted


def message_of(error: BaseException) -> str:
    """The message of an error, for the run's record."""
    return error.message if isinstance(error, TrainshedError) else f"{type(error).__name__}: {error}"


def log_name(plan: ProcessPlan) -> str:
    """Where a process' log is in its node's folder: those of helpers apart, as they are not output of a rank."""
    return f"helpers/{plan.name}.log" if plan.helper else f"{plan.name}.log"


def _last_lines_of(item: processes.Running) -> tuple[str, ...]:
    """The end of a failed process' log; of a command, what the rank wrote that its launcher reports."""
    if item.plan.rank is not None or item.plan.helper:
        return tail(item.log.path)
    return last_lines(tail(item.log.path, _SEARCHED))


def _begin(work: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    """Work in its own thread; what it raised is in the list when the thread has ended."""
    problem: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            problem.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread, problem


class Watch:
    """One node of one attempt, as its agent sees it."""

    def __init__(self, run: RunDirectory, plan: Plan, node: NodePlan, handover: Handover) -> None:
        self.run, self.plan, self.node, self.handover = run, plan, node, handover
        self.folder = run.node(node.index)
        self.folder.mkdir(exist_ok=True)
        self._alive = files.hold(self.folder / "alive.lock")
        self._events = run.node_writer(node.index, handover.attempt)
        self._secret = bytes.fromhex(handover.secret)
        self._coordinator: Coordinator | None = None
        self._link: Link | None = None
        self._selector = selectors.DefaultSelector()
        self._running: list[processes.Running] = []
        self._cards: list[Card] | None = None
        """The public keys of all nodes, once the coordinator has them."""
        self._going = self._finishing = self._failed = False
        self._signalled, self._from_driver = "", b""
        self._pumped = self._shown = time.monotonic()
        self._orphaned: float | None = None
        self._oom_kills = environment.oom_kills()
        self._times = LogTimes()
        self._progress = ProgressFile(self.folder)
        self._meter = NodeMeter(self.folder / "metrics.jsonl", DeviceKind(plan.kind), plan.memory or 0)
        self._heads = HeadKeeper(run, node.index, handover.attempt)

    def _open(self) -> None:
        if self.node.index == 0:
            names = [node.name for node in self.plan.nodes]
            limits = Limits(register=self.handover.register_limit, total=self.plan.timeout)
            record = self.run.writer(f"coordinator-{self.handover.attempt}")
            self._coordinator = Coordinator(
                record,
                self.handover.attempt,
                names,
                self.node.coordinator,
                self._secret,
                self.plan.grace,
                limits,
                self._open_chain(),
            )
            self._coordinator.start()
        began = time.monotonic()
        self._link = Link.open(
            self.node.coordinator, self.node.index, self._secret, self.handover.register_limit, self._check
        )
        self._selector.register(self._link.channel, selectors.EVENT_READ, "coordinator")
        self._phase("prepare", began)

    def _open_chain(self) -> ChainWriter | None:
        """The chain of this attempt; a run whose chain cannot be begun goes on without one, and shows it."""
        try:
            nonce = self.run.submission().labels.get(NONCE_LABEL, "")
            return ChainWriter(
                self.run.path / path_of(self.handover.attempt), self.run.id, nonce, time.time()
            )
        except (OSError, UnreadableRunError):
            traceback.print_exc()
            return None

    def _send_heads(self) -> None:
        for message in self._heads.messages():
            self._send(message)

    def _in_background(self, phase: str, cause: Cause, work: Callable[[], Any]) -> None:
        """Do slow work in a thread while the node stays reachable; its failure is the run's."""
        began = time.monotonic()
        thread, problem = _begin(work)
        thread.join(0.02)
        while thread.is_alive():
            self._pump(0.05)
            self._progress.show(phase, began)
            thread.join(0.01)
        self._progress.clear()
        self._phase(phase, began)
        if problem:
            text = message_of(problem[0])
            lines = tail(self.folder / "pre-start.log") if cause is Cause.HOOK else ()
            self._fail(
                cause,
                f"{phase} on node {self.node.index} ({self.node.name}) failed: {text}",
                last_lines=lines,
            )
            raise Stop(text, self.plan.grace)

    def _aside(self, work: Callable[[], Any], phase: str = "") -> BaseException | None:
        """Do slow work in a thread while already stopping, and stay reachable; what it raised, if it did."""
        began = time.monotonic()
        thread, problem = _begin(work)
        thread.join(0.02)
        while thread.is_alive():
            self._pump_quietly(0.05)
            if phase:
                self._progress.show(phase, began)
            thread.join(0.01)
        self._progress.clear()
        return problem[0] if problem else None

    def _pump_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._pump(0.25)

    def _pump(self, wait: float) -> None:
        """Handle everything that may have happened, for at most `wait` seconds; raises Stop when requested."""
        self._beat()
        self._times.sample()
        for key, _ in self._selector.select(wait):
            if key.data == "driver":
                self._read_driver()
            elif key.data == "coordinator":
                self._read_coordinator()
            else:
                self._ended(key.data)
        if self._signalled:
            self._fail(
                Cause.STOP, f"node {self.node.index} ({self.node.name}) was stopped by {self._signalled}"
            )
            self._signalled = ""
        if self._orphaned and time.monotonic() > self._orphaned:
            self._orphaned = None
            raise Stop("the driver stopped it, or is gone", 5.0)
        if self.plan.memory and self._meter.memory > self.plan.memory and not self._failed:
            self._fail(
                Cause.MEMORY, environment.describe_memory(self.node, self._meter.memory, self.plan.memory)
            )

    def _beat(self) -> None:
        """Send signs of life to coordinator and driver, and check when the coordinator last sent one."""
        now = time.monotonic()
        held_up, self._pumped = max(0.0, now - self._pumped - _STALL), now
        if self.handover.beats and now - self._shown > _SIGN:
            # Also before the coordinator is reached, and while it still serves others.
            self._shown = now
            # A driver that does not read is frozen, or gone, which the end of the pipe shows.
            with contextlib.suppress(OSError):
                os.write(sys.stdin.fileno(), b".")
        if self._link is None:
            return
        if self._link.beat(self._quietest):
            self._send_heads()
        # What held this process up is not the coordinator's silence.
        self._link.heard = min(now, self._link.heard + held_up)
        if now - self._link.heard > _SILENCE:
            raise self._abandoned(f"sent nothing for {_SILENCE:.0f} s")

    def _quietest(self) -> tuple[str, float] | None:
        """Of the ranks at work, the one that has not written for longest, and for how many seconds."""
        found = self._silences()
        return (found[0][0], round(found[0][1], 1)) if found else None

    def _silent_ranks(self) -> str:
        """Which ranks were still at work, and when they last wrote: who hangs is among the first."""
        found = self._silences()
        if not found:
            return ""
        shown = ", ".join(f"{name.replace('-', ' ')} {seconds:.0f} s before" for name, seconds in found[:8])
        more = f" and {len(found) - 8} more" if len(found) > 8 else ""
        return (
            f"still running on node {self.node.index} ({self.node.name}), by their last output: {shown}{more}"
        )

    def _silences(self) -> list[tuple[str, float]]:
        """(process, seconds since it wrote) of all that still run, the longest silent first."""
        now, found = time.time(), []
        for item in self._running:
            if not item.plan.helper and item.process.returncode is None:
                wrote = last_written(item.log.path) or item.started
                found.append((item.plan.name, max(0.0, now - wrote)))
        return sorted(found, key=lambda one: -one[1])

    def _check(self) -> None:
        self._pump(0)

    def _pump_quietly(self, wait: float) -> None:
        """As _pump, while already stopping: further bad news changes nothing."""
        try:
            self._pump(wait)
        except (Stop, AgentConnectionError):
            time.sleep(0.01)

    def _read_driver(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 1 << 12)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""  # so it looks when the driver dies before it has read our signs of life
        if not data:
            self._selector.unregister(sys.stdin)
            failure = Failure(Cause.DRIVER, "the run's driver process is gone (it was killed)")
        else:
            self._from_driver += data
            line, end, _ = self._from_driver.partition(b"\n")
            if not end:
                return  # the rest of a long reason follows
            request = json.loads(line)
            failure = Failure(Cause(request["cause"]), request["reason"])
        if self._coordinator:
            self._coordinator.request_stop(failure)
        elif self._orphaned is None:
            self._orphaned = time.monotonic() + _ORPHANED

    def _read_coordinator(self) -> None:
        assert self._link
        try:
            messages = self._link.channel.receive()
        except AgentConnectionError as error:
            raise self._abandoned("is gone") from error
        self._link.heard = time.monotonic()
        for message in messages:
            match message["type"]:
                case "cards":
                    self._cards = message["cards"]
                case "go":
                    self._going = True
                case "finish":
                    self._finishing = True
                case "stop":
                    self._failed = True
                    raise Stop(message["reason"], float(message["grace"]), bool(message.get("wanted")))
                case _:
                    pass

    def _abandoned(self, how: str) -> Stop:
        """The coordinator is lost: this node stops on its own."""
        if self._link:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._link.channel)
            self._link = None
        reason = f"node 0 ({self.plan.nodes[0].name}) was lost: its agent, which coordinates the run, {how}"
        if not self._failed:
            self._failed = True
            self._record(Failure(Cause.NODE, reason, node=0))
        return Stop(reason, 5.0)

    def _ended(self, item: processes.Running) -> None:
        self._selector.unregister(item.handle)
        code = item.process.wait()
        os.close(item.handle)
        self._events.append(ProcessExited(self.handover.attempt, item.plan.name, code))
        serves = item.plan.helper or item.plan.serves
        if code == 0 or self._failed or (serves and self._finishing):
            return
        item.log.settle()
        name = item.plan.name.replace("-", " ") if item.plan.rank is not None else f"the {item.plan.name}"
        name = "the command" if item.plan.name == f"node-{self.node.index}" else name
        where = f"{name} on node {self.node.index} ({self.node.name})"
        reason = f"{where} {describe_exit(code)}"
        if code == -signal.SIGKILL:
            killer = environment.oom_kills() > self._oom_kills
            reason += ": the kernel ran out of memory" if killer else ": from outside, or out of memory"
        self._fail(
            Cause.RANK,
            reason,
            process=item.plan.name,
            log=f"node-{self.node.index}/{log_name(item.plan)}",
            exit_code=exit_code_of(code),
            last_lines=_last_lines_of(item),
        )

    def _fail(self, cause: Cause, reason: str, **details: Any) -> None:
        failure = Failure(cause, reason, node=self.node.index, **details)
        if self._failed:
            return
        self._failed = True
        self._record(failure)
        self._send_quietly({"type": "failed", "failure": failure.to_json()})

    def _record(self, failure: Failure) -> None:
        # On a full disk the coordinator still gets it, and the driver records why.
        with contextlib.suppress(OSError):
            self._events.append(FailureSeen(self.handover.attempt, failure))

    def _send(self, message: dict[str, Any]) -> None:
        assert self._link
        self._link.send(message)

    def _send_quietly(self, message: dict[str, Any]) -> None:
        try:
            if self._link:
                self._link.send(message)
        except AgentConnectionError:
            pass

    def _phase(self, phase: str, began: float) -> None:
        seconds = round(time.monotonic() - began, 3)
        self._events.append(PhaseFinished(self.handover.attempt, phase, seconds))

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signalled = signal.Signals(number).name
