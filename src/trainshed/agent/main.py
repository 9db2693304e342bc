"""The agent: what runs on a node, and the only code that touches it.

prepare → fetch code → write files → install requirements → pre-start hook → fetch
inputs → prepare outputs → barrier → start ranks → watch → upload outputs → record. Whatever goes wrong is reported to
the coordinator, recorded, and stops all nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainshed.agent import environment, homes, hooks, processes, requirements, staging
from trainshed.agent.handover import Handover, read_handover
from trainshed.agent.inputs import Cache
from trainshed.agent.joined import JoinedLog
from trainshed.agent.masking import Log, open_log
from trainshed.agent.node_access import NodeAccess
from trainshed.agent.reports import Reports
from trainshed.agent.ssh import Ssh
from trainshed.agent.uploads import Uploads
from trainshed.agent.watch import Stop, Watch, log_name, message_of
from trainshed.agent.wire import AgentConnectionError
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, Plan, ProcessPlan, Transfer, expanded
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Note, OutputsUnsaved, ProcessStarted
from trainshed.runs.states import Cause

_COLLECTED = 5.0
"""Seconds that processes which have ended may take until the kernel says how."""


class Agent(Watch):
    """One attempt on one node."""

    def __init__(self, run: RunDirectory, plan: Plan, node: NodePlan, handover: Handover) -> None:
        super().__init__(run, plan, node, handover)
        self._reports = Reports(self.folder)
        self.access = NodeAccess(node, handover, plan.image, str(self._reports.folder))
        outputs = tuple(replace(item, source=self.access.real(item.source)) for item in node.outputs)
        self._store = environment.store_of(plan, handover.secrets, run.home)
        self._uploads = Uploads(outputs, run, node.index, self._store, self._progress.copied)
        self._joined = JoinedLog(run, node, node.log, self._store) if node.log else None

    def serve(self) -> int:
        """Run the node's part of the run. 0 when it ended well."""
        processes.adopt_orphans()
        processes.keep_private()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if self.handover.attempt > 1:
            _set_aside(self.folder, self.handover.attempt - 1)
        if self.handover.lifeline:
            os.set_blocking(sys.stdin.fileno(), False)
            self._selector.register(sys.stdin, selectors.EVENT_READ, "driver")
        try:
            self._open()
            self._meter.start()
            self._heads.start()
            self._work()
            return self._close()
        except Stop as stop:
            return self._close(stop)
        except (AgentConnectionError, OSError) as error:
            self._fail(Cause.NODE, f"node {self.node.index} ({self.node.name}): {error}")
            return self._close(Stop(str(error), 5.0))
        except Exception as error:  # a mistake of ours: the run must still end and say so
            traceback.print_exc()
            self._fail(
                Cause.NODE,
                f"agent of node {self.node.index}: {error!r} (see its agent.log)",
            )
            return self._close(Stop(str(error), 5.0))

    def _work(self) -> None:
        node = self.node
        self._reports.open()
        env = environment.base(self.plan, node, self.handover.secrets, self._reports.folder)
        if node.code:
            self._in_background("fetch code", Cause.STAGING, partial(self._fetch, (node.code,)))
        self._in_background("write files", Cause.STAGING, self._write_files)
        if self._joined:
            self._in_background("prepare log", Cause.STAGING, self._joined.start)
        for listing in filter(self._exists, node.requirements):
            opened = partial(self._log, "pre-start.log")
            self._in_background(
                "install requirements",
                Cause.HOOK,
                partial(requirements.install, listing, env, opened, self.access),
            )
        found = [(script, node.hook_dir) for script in filter(self._exists, node.hooks)]
        for script, folder in [(script, "") for script in node.pre_start] + found:
            log = self._log("pre-start.log")
            self._in_background(
                "pre-start", Cause.HOOK, partial(hooks.source, script, env, log, self.access, folder)
            )
        if node.inputs:
            cache = Cache(Path(self.handover.cache), self._store) if self.handover.cache else None
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
        awaited = [item.process for item in self._running if not (item.plan.helper or item.plan.serves)]
        self._pump_until(lambda: all(process.returncode is not None for process in awaited))
        self._send({"type": "done"})
        self._pump_until(lambda: self._finishing)
        self._phase("run", began)

    def _exists(self, path: str) -> bool:
        return Path(self.access.real(path)).is_file()

    def _log(self, name: str) -> Log:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        return open_log(path, self.handover.secrets.values())

    def _fetch(self, transfers: tuple[Transfer, ...], cache: Cache | None = None) -> None:
        for item in transfers:
            real = replace(item, target=self.access.real(item.target))
            staging.fetch(real, self._store, cache, self._progress.copied)

    def _write_files(self) -> None:
        for seen in (*(seen for seen, _ in self.node.private), *self.node.folders):
            homes.make_folder(self.access.real(seen), self._home())
        for path, target in self.node.links:
            homes.make_link(self.access.real(path), target)
        common = tuple(replace(item, path=self.node.placed(item.path)) for item in self.plan.files)
        environment.write_files((*common, *self.node.files), self.access)

    def _home(self) -> str:
        """The home as the agent reaches it, if jobs share it and may have left links in it."""
        return self.access.real(self.node.home) if self.plan.isolated and self.node.kept_home else ""

    def _start_ssh(self, env: dict[str, str]) -> None:
        """Exchange public keys with all nodes, then let them in."""
        ssh = Ssh(self.plan, self.node, self.access)
        self._in_background("make keys", Cause.STAGING, ssh.make_keys)
        self._send({"type": "card", "card": ssh.card})
        self._pump_until(lambda: self._cards is not None)
        self._in_background("configure ssh", Cause.STAGING, partial(ssh.configure, self._cards or (), env))
        self._start(ssh.process(), env)
        self._in_background("start ssh", Cause.STAGING, ssh.await_listening)

    def _start(self, plan: ProcessPlan, env: dict[str, str]) -> None:
        log = self._log(log_name(plan))
        mine = expanded(env | dict(plan.env))
        try:
            argv = self.access.enter(plan.argv, plan.cwd, mine, is_sshd=plan.name == Ssh.PROCESS)
            if not self.access.is_outside and shutil.which(plan.argv[0], path=mine.get("PATH")) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), plan.argv[0])
            item = processes.start(plan, mine, log, argv, self.access.real(plan.cwd))
        except OSError as error:
            self._fail(
                Cause.RANK,
                f"{plan.name} cannot be started: {error}",
                process=plan.name,
                log=f"node-{self.node.index}/{log_name(plan)}",
                exit_code=127,
            )
            raise Stop("a process could not be started", self.plan.grace) from error
        self._events.append(ProcessStarted(self.handover.attempt, plan.name, item.process.pid))
        self._running.append(item)
        if not plan.helper:
            self._times.watch(log.path)
        self._selector.register(item.handle, selectors.EVENT_READ, item)

    def _close(self, stop: Stop | None = None) -> int:
        """Stop what runs, save what was written, take leave."""
        began = time.monotonic()
        if stop and stop.is_wanted and (silent := self._silent_ranks()):
            self._events.append(Note(silent))
        grace = min(stop.grace if stop else self.plan.grace, self.plan.grace)
        processes.stop_all(self._running, grace, self._pump_quietly)
        self._record_exits()
        self._aside_or_note(self._settle_logs)
        self._aside_or_note(self._take_reports)
        self._aside_or_note(self._uploads.stop)
        problem = self._save()
        self._aside_or_note(self._finish_log)
        self._phase("upload", began)
        self._meter.stop()
        if problem:
            self._events.append(OutputsUnsaved(problem))
            self._fail(Cause.STAGING, problem)
        self._aside(self._heads.finish)
        self._leave()
        return 1 if stop or problem else 0

    def _record_exits(self) -> None:
        """How the last processes ended: nothing may be added to this node's record once its heads are sent.

        A process with many threads can be collected only when the last of them is gone, a moment after its death.
        """
        watched, deadline = self._selector.get_map(), time.monotonic() + _COLLECTED
        while any(item.handle in watched for item in self._running) and time.monotonic() < deadline:
            self._pump_quietly(0.05)

    def _settle_logs(self) -> None:
        for item in self._running:
            item.log.settle()
        self._times.sample(final=True)

    def _take_reports(self) -> None:
        for problem in self._reports.take():
            self._events.append(Note(f"node {self.node.index}: {problem}"))

    def _finish_log(self) -> None:
        if self._joined and (unsaved := self._joined.finish()):
            self._events.append(Note(unsaved))

    def _aside_or_note(self, work: Callable[[], None]) -> None:
        if error := self._aside(work):
            self._events.append(Note(f"at the end of node {self.node.index}: {message_of(error)}"))

    def _save(self) -> str:
        """The outputs; what went wrong, if anything did."""
        if not self.node.outputs:
            return ""
        error = self._aside(self._uploads.save_all, "upload")
        if error is None or isinstance(error, TrainshedError):
            return error.message if error else ""
        return f"cannot save the outputs of node {self.node.index} ({self.node.name}): {message_of(error)}"

    def _leave(self) -> None:
        """Sign off; node 0 stays, and reads from its driver, for as long as its coordinator serves others."""
        for message in self._heads.messages():
            self._send_quietly(message)
        self._send_quietly({"type": "closed"})
        link, self._link = self._link, None
        if link:
            with contextlib.suppress(KeyError):
                self._selector.unregister(link.channel)
        while self._coordinator and self._coordinator.is_alive():
            self._pump_quietly(0.05)


def _set_aside(folder: Path, attempt: int) -> None:
    """The logs of an earlier attempt stay, under their own name."""
    for path in (*folder.glob("*.log"), *folder.glob("*.times")):
        if path.name != "agent.log" and ".attempt-" not in path.name:
            path.rename(path.with_name(f"{path.stem}.attempt-{attempt}{path.suffix}"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="trainshed agent")
    parser.add_argument("--run", required=True, type=Path)
    parser.add_argument("--node", required=True, type=int)
    parser.add_argument("--handover")
    options = parser.parse_args()
    run = RunDirectory(options.run)
    try:
        handover = read_handover(options.handover)
        plan = Plan.from_json(run.plan_json())
    except TrainshedError as error:
        sys.exit(f"trainshed agent: {error}")  # into its log, with code 1
    return Agent(run, plan, plan.nodes[options.node], handover).serve()


if __name__ == "__main__":
    sys.exit(main())
