"""What an agent watches: its processes, its driver, its coordinator, and its node's memory.

One loop (`_pump`) looks after all of them; slow work is done in a thread while
the loop goes on, so that a node is never out of reach. The first bad news is
recorded and told to the coordinator, and its word ends the work with `Stop`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from trainshed.agent import environment, processes
from trainshed.agent.coordinator import Coordinator, Limits
from trainshed.agent.handover import Handover
from trainshed.agent.link import Link
from trainshed.agent.metering import Meter
from trainshed.agent.ssh import Card
from trainshed.agent.wire import WireError
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, Plan
from trainshed.runs import events, locks
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.logs import tail
from trainshed.runs.outcome import Failure, exit_code_of, words_of
from trainshed.runs.states import Cause
from trainshed.spec.kinds import DeviceKind

_ORPHANED = 3.0
"""Seconds an agent without a driver waits for the coordinator's word before it stops by itself."""


class Stop(Exception):
    """The run ends here: somebody failed, or somebody asked."""

    def __init__(self, reason: str, grace: float) -> None:
        super().__init__(reason)
        self.grace = grace


def told(error: BaseException) -> str:
    """An error in words for the run's reader."""
    return error.message if isinstance(error, TrainshedError) else f"{type(error).__name__}: {error}"


def _begin(work: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    """Work in a thread of its own; what it raised is in the list when the thread has ended."""
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

    def __init__(self, run: RunDirectory, plan: Plan, node: NodePlan, given: Handover) -> None:
        self.run, self.plan, self.node, self.given = run, plan, node, given
        self.folder = run.node(node.index)
        self.folder.mkdir(exist_ok=True)
        self._alive = locks.hold(self.folder / "alive.lock")
        self._events = self.folder / "events.jsonl"
        self._secret = bytes.fromhex(given.secret)
        self._coordinator: Coordinator | None = None
        self._link: Link | None = None
        self._selector = selectors.DefaultSelector()
        self._running: list[processes.Running] = []
        self._cards: list[Card] | None = None
        """The public keys of all nodes, once the coordinator has them."""
        self._going = self._finishing = self._failed = False
        self._signalled = ""
        self._orphaned: float | None = None
        self._oom_kills = environment.oom_kills()
        self._meter = Meter(self.folder / "metrics.jsonl", DeviceKind(plan.kind), plan.memory or 0)

    def _open(self) -> None:
        if self.node.index == 0:
            names = [node.name for node in self.plan.nodes]
            limits = Limits(register=self.given.register_limit, total=self.plan.timeout)
            self._coordinator = Coordinator(
                self.run, names, self.node.coordinator, self._secret, self.plan.grace, limits
            )
            self._coordinator.start()
        began = time.monotonic()
        self._link = Link.open(
            self.node.coordinator, self.node.index, self._secret, self.given.register_limit, self._check
        )
        self._selector.register(self._link.channel, selectors.EVENT_READ, "coordinator")
        self._phase("prepare", began)

    def _in_background(self, phase: str, cause: Cause, work: Callable[[], Any]) -> None:
        """Do slow work in a thread while the node stays reachable; its failure is the run's."""
        began = time.monotonic()
        thread, problem = _begin(work)
        thread.join(0.02)
        while thread.is_alive():
            self._pump(0.05)
            thread.join(0.01)
        self._phase(phase, began)
        if problem:
            text = told(problem[0])
            lines = tail(self.folder / "pre-start.log") if cause is Cause.HOOK else ()
            self._fail(
                cause,
                f"{phase} on node {self.node.index} ({self.node.name}) failed: {text}",
                last_lines=lines,
            )
            raise Stop(text, self.plan.grace)

    def _aside(self, work: Callable[[], Any]) -> BaseException | None:
        """Do slow work in a thread while already stopping, and stay reachable; what it raised, if it did."""
        thread, problem = _begin(work)
        thread.join(0.02)
        while thread.is_alive():
            self._pump_quietly(0.05)
            thread.join(0.01)
        return problem[0] if problem else None

    def _pump_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._pump(0.25)

    def _pump(self, wait: float) -> None:
        """Look after everything that may have happened, for at most `wait` seconds; Stop when told so."""
        if self._link:
            self._link.beat()
        for key, _ in self._selector.select(wait):
            if key.data == "driver":
                self._hear_driver()
            elif key.data == "coordinator":
                self._hear_coordinator()
            else:
                self._ended(key.data)
        if self._signalled:
            self._fail(
                Cause.STOP, f"node {self.node.index} ({self.node.name}) was told to stop by {self._signalled}"
            )
            self._signalled = ""
        if self._orphaned and time.monotonic() > self._orphaned:
            self._orphaned = None
            raise Stop("the driver said so, or is gone", 5.0)
        if self.plan.memory and self._meter.memory > self.plan.memory and not self._failed:
            self._fail(
                Cause.MEMORY, environment.memory_words(self.node, self._meter.memory, self.plan.memory)
            )

    def _check(self) -> None:
        self._pump(0)

    def _pump_quietly(self, wait: float) -> None:
        """As _pump, while already stopping: further bad news changes nothing."""
        try:
            self._pump(wait)
        except (Stop, WireError):
            time.sleep(0.01)

    def _hear_driver(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 1 << 12)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(sys.stdin)
            failure = Failure(Cause.DRIVER, "the run's driver process is gone (it was killed)")
        else:
            told = json.loads(data.split(b"\n")[0])
            failure = Failure(Cause(told["cause"]), told["reason"])
        if self._coordinator:
            self._coordinator.request_stop(failure)
        elif self._orphaned is None:
            self._orphaned = time.monotonic() + _ORPHANED

    def _hear_coordinator(self) -> None:
        assert self._link
        try:
            messages = self._link.channel.receive()
        except WireError:
            self._selector.unregister(self._link.channel)
            reason = (
                f"node 0 ({self.plan.nodes[0].name}) was lost: its agent, which coordinates the run, is gone"
            )
            self._record(Failure(Cause.NODE, reason, node=0))
            raise Stop(reason, 5.0) from None
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
                    raise Stop(message["reason"], float(message["grace"]))
                case _:
                    pass

    def _ended(self, item: processes.Running) -> None:
        self._selector.unregister(item.handle)
        code = item.process.wait()
        os.close(item.handle)
        events.append(self._events, Kind.EXITED, process=item.plan.name, returncode=code)
        if code == 0 or self._failed or (item.plan.helper and self._finishing):
            return
        item.log.settle()
        name = item.plan.name.replace("-", " ") if item.plan.rank is not None else f"the {item.plan.name}"
        name = "the command" if item.plan.name == f"node-{self.node.index}" else name
        where = f"{name} on node {self.node.index} ({self.node.name})"
        reason = f"{where} {words_of(code)}"
        if code == -signal.SIGKILL:
            killer = environment.oom_kills() > self._oom_kills
            reason += ": the kernel ran out of memory" if killer else ": from outside, or out of memory"
        self._fail(
            Cause.RANK,
            reason,
            process=item.plan.name,
            exit_code=exit_code_of(code),
            last_lines=tail(item.log.path),
        )

    def _fail(self, cause: Cause, reason: str, **details: Any) -> None:
        if details.get("process"):
            details["log"] = f"node-{self.node.index}/{details['process']}.log"
        failure = Failure(cause, reason, node=self.node.index, **details)
        if self._failed:
            return
        self._failed = True
        self._record(failure)
        self._send_quietly({"type": "failed", "failure": failure.to_json()})

    def _record(self, failure: Failure) -> None:
        events.append(self._events, Kind.FAILURE, **failure.to_json())

    def _send(self, message: dict[str, Any]) -> None:
        assert self._link
        self._link.send(message)

    def _send_quietly(self, message: dict[str, Any]) -> None:
        try:
            if self._link:
                self._link.send(message)
        except WireError:
            pass

    def _phase(self, phase: str, began: float) -> None:
        seconds = round(time.monotonic() - began, 3)
        events.append(self._events, Kind.PHASE, phase=phase, seconds=seconds)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signalled = signal.Signals(number).name
