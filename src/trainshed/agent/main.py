"""The agent: what runs on a node, and the only code that touches it.

prepare → fetch code → pre-start hook → fetch inputs → write files → barrier →
start ranks → watch → upload outputs → record. Whatever goes wrong is told to
the coordinator, recorded, and stops all nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trainshed.agent import environment, hooks, processes, requirements, staging
from trainshed.agent.coordinator import Coordinator, Limits
from trainshed.agent.handover import Handover, read_handover
from trainshed.agent.inputs import Cache
from trainshed.agent.joined import JoinedLog
from trainshed.agent.link import Link
from trainshed.agent.masking import Log, open_log
from trainshed.agent.metering import Meter
from trainshed.agent.place import Place
from trainshed.agent.ssh import Card, Ssh
from trainshed.agent.uploads import Uploads
from trainshed.agent.wire import WireError
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, Plan, ProcessPlan, Transfer
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


class Agent:
    """One attempt on one node."""

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
        self._going = self._finishing = self._failed = False
        self._signalled = ""
        self._orphaned: float | None = None
        self._oom_kills = environment.oom_kills()
        self.place = Place(node, given, plan.image)
        self._meter = Meter(self.folder / "metrics.jsonl", DeviceKind(plan.kind))
        outputs = tuple(replace(item, source=self.place.real(item.source)) for item in node.outputs)
        self._uploads = Uploads(outputs, run, len(plan.nodes), node.index)
        self._joined = JoinedLog(run, node, node.log) if node.log else None

    def serve(self) -> int:
        """Bring the node through the run. 0 when its part ended well."""
        processes.adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if self.given.attempt > 1:
            _set_aside(self.folder, self.given.attempt - 1)
        if self.given.lifeline:
            os.set_blocking(sys.stdin.fileno(), False)
            self._selector.register(sys.stdin, selectors.EVENT_READ, "driver")
        try:
            self._open()
            self._meter.start()
            self._work()
            return self._close()
        except Stop as stop:
            return self._close(stop)
        except (WireError, OSError) as error:
            self._fail(Cause.NODE, f"node {self.node.index} ({self.node.name}): {error}")
            return self._close(Stop(str(error), 5.0))
        except Exception as error:  # a mistake of ours: the run must still end and say so
            traceback.print_exc()
            self._fail(
                Cause.NODE,
                f"agent of node {self.node.index}: {error!r} (see its agent.log)",
            )
            return self._close(Stop(str(error), 5.0))

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

    def _work(self) -> None:
        node = self.node
        env = environment.base(self.plan, node, self.given.secrets, self.folder)
        if node.code:
            self._in_background("fetch code", Cause.STAGING, partial(self._fetch, (node.code,)))
        self._in_background("write files", Cause.STAGING, self._write_files)
        if self._joined:
            self._joined.start()
        for listing in filter(self._exists, node.requirements):
            log = self._log("pre-start.log")
            self._in_background(
                "install requirements",
                Cause.HOOK,
                partial(requirements.install, listing, env, log, self.place),
            )
        found = [(script, node.hook_dir) for script in filter(self._exists, node.hooks)]
        for script, folder in [(script, "") for script in node.pre_start] + found:
            log = self._log("pre-start.log")
            self._in_background(
                "pre-start", Cause.HOOK, partial(hooks.source, script, env, log, self.place, folder)
            )
        if node.inputs:
            cache = Cache(Path(self.given.cache)) if self.given.cache else None
            self._in_background("fetch inputs", Cause.STAGING, partial(self._fetch, node.inputs, cache))
        self._in_background("prepare outputs", Cause.STAGING, self._uploads.prepare)
        if self.plan.ssh:
            self._start_ssh(env)
        self._send({"type": "ready"})
        began = time.monotonic()
        self._pump_until(lambda: self._going)
        self._phase("barrier", began)
        began = time.monotonic()
        for plan in self.node.processes:
            self._start(plan, env)
        self._uploads.start()
        awaited = [item.process for item in self._running if not item.plan.helper]
        self._pump_until(lambda: all(process.returncode is not None for process in awaited))
        self._send({"type": "done"})
        self._pump_until(lambda: self._finishing)
        self._phase("run", began)

    def _exists(self, path: str) -> bool:
        return Path(self.place.real(path)).is_file()

    def _log(self, name: str) -> Log:
        return open_log(self.folder / name, self.given.secrets.values())

    def _fetch(self, transfers: tuple[Transfer, ...], cache: Cache | None = None) -> None:
        for item in transfers:
            staging.fetch(replace(item, target=self.place.real(item.target)), cache)

    def _write_files(self) -> None:
        for seen in (*(seen for seen, _ in self.node.private), *self.node.folders):
            Path(self.place.real(seen)).mkdir(parents=True, exist_ok=True)
        common = tuple(replace(item, path=self.node.placed(item.path)) for item in self.plan.files)
        environment.write_files((*common, *self.node.files), self.place)

    def _start_ssh(self, env: dict[str, str]) -> None:
        """Exchange public keys with all nodes, then let them in."""
        ssh = Ssh(self.plan, self.node, self.place)
        self._in_background("make keys", Cause.STAGING, ssh.make_keys)
        self._send({"type": "card", "card": ssh.card})
        self._pump_until(lambda: self._cards is not None)
        self._in_background("configure ssh", Cause.STAGING, partial(ssh.configure, self._cards or (), env))
        self._start(ssh.process(), env)
        self._in_background("start ssh", Cause.STAGING, ssh.await_listening)

    def _start(self, plan: ProcessPlan, env: dict[str, str]) -> None:
        log = self._log(f"{plan.name}.log")
        mine = env | dict(plan.env)
        argv = self.place.enter(plan.argv, plan.cwd, mine)
        try:
            item = processes.start(plan, mine, log, argv, self.place.real(plan.cwd))
        except OSError as error:
            self._fail(
                Cause.RANK, f"{plan.name} cannot be started: {error}", process=plan.name, exit_code=127
            )
            raise Stop("a process could not be started", self.plan.grace) from None
        events.append(self._events, Kind.STARTED, process=plan.name, pid=item.process.pid)
        self._running.append(item)
        self._selector.register(item.handle, selectors.EVENT_READ, item)

    def _close(self, stop: Stop | None = None) -> int:
        """Stop what runs, save what was written, take leave."""
        began = time.monotonic()
        grace = min(stop.grace if stop else self.plan.grace, self.plan.grace)
        processes.stop_all(self._running, grace, self._pump_quietly)
        for item in self._running:
            item.log.settle()
        self._uploads.stop()
        problem = self._save()
        if self._joined and (unsaved := self._joined.finish()):
            events.append(self._events, Kind.NOTE, text=unsaved)
        self._phase("upload", began)
        self._meter.stop()
        if problem:
            self.run.append(Kind.UNSAVED, node=self.node.index, problem=problem)
            self._fail(Cause.STAGING, problem)
        self._send_quietly({"type": "closed"})
        if self._coordinator:
            self._coordinator.join(3600.0)
        return 1 if stop or problem else 0

    def _save(self) -> str:
        if not self.node.outputs:
            return ""
        problem: list[str] = []

        def save() -> None:
            try:
                self._uploads.save_all()
            except TrainshedError as error:
                problem.append(error.message)

        thread = threading.Thread(target=save, daemon=True)
        thread.start()
        while thread.is_alive():
            self._pump_quietly(0.1)
        return problem[0] if problem else ""

    def _in_background(self, phase: str, cause: Cause, work: Callable[[], Any]) -> None:
        """Do slow work in a thread while the node stays reachable; its failure is the run's."""
        began = time.monotonic()
        problem: list[BaseException] = []

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                problem.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        thread.join(0.02)
        while thread.is_alive():
            self._pump(0.05)
            thread.join(0.01)
        self._phase(phase, began)
        if problem:
            error = problem[0]
            text = error.message if isinstance(error, TrainshedError) else f"{type(error).__name__}: {error}"
            lines = tail(self.folder / "pre-start.log") if cause is Cause.HOOK else ()
            self._fail(
                cause,
                f"{phase} on node {self.node.index} ({self.node.name}) failed: {text}",
                last_lines=lines,
            )
            raise Stop(text, self.plan.grace)

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
            failure = Failure(
                Cause(json.loads(data.split(b"\n")[0])["cause"]), json.loads(data.split(b"\n")[0])["reason"]
            )
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
        item.log.settle()
        os.close(item.handle)
        events.append(self._events, Kind.EXITED, process=item.plan.name, returncode=code)
        if code == 0 or (item.plan.helper and self._finishing):
            return
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


def _set_aside(folder: Path, attempt: int) -> None:
    """The logs of an earlier attempt stay, under a name of their own."""
    for path in folder.glob("*.log"):
        if path.name != "agent.log" and ".attempt-" not in path.name:
            path.rename(path.with_name(f"{path.stem}.attempt-{attempt}.log"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="trainshed agent")
    parser.add_argument("--run", required=True, type=Path)
    parser.add_argument("--node", required=True, type=int)
    parser.add_argument("--handover")
    options = parser.parse_args()
    given = read_handover(options.handover)
    run = RunDirectory(options.run)
    plan = Plan.from_json(run.plan_json())
    environment.adopt_store(plan, given.secrets)
    return Agent(run, plan, plan.nodes[options.node], given).serve()


if __name__ == "__main__":
    sys.exit(main())
