"""The server's loop: watches live runs, keeps the index, makes one queue pass on every change.

It holds nothing that a restart would lose: what it knows it reads from the
database and the run directories, what it does is recorded there.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from trainshed.api import Client, Run
from trainshed.api.queued import BUSY
from trainshed.engines.local.engine import capacity
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.summary import is_queued
from trainshed.server.accounts.keyring import Keyring
from trainshed.server.accounts.people import People
from trainshed.server.index import Row, RunIndex, changing, differs
from trainshed.server.scheduling import Decide, PoolState, QueuedRun, first_come
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.load import load_fields

PERIOD = 2.0
_BRISK = 0.5
"""Seconds between passes while runs live."""
_SCAN = 10.0
"""Seconds between looks for runs that were started without the server."""
_CHUNK = 200
_log = logging.getLogger(__name__)


@dataclass
class Loop:
    """One thread; `wake` makes it look at once."""

    client: Client
    index: RunIndex
    people: People
    keyring: Keyring
    decide: Decide = first_come
    passes: int = 0
    seconds: float = 0.0
    last_pass: float = 0.0
    """When the last pass ended without a fault, by the monotonic clock."""
    _awake: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _scanned: float = float("-inf")

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 30.0) -> None:
        """After the pass that is under way; runs go on."""
        self._stopped.set()
        self._awake.set()
        if self._thread:
            self._thread.join(seconds)

    def wake(self) -> None:
        self._awake.set()

    def step(self) -> bool:
        """One pass; whether any run lives."""
        began = time.monotonic()
        if began - self._scanned > _SCAN:
            self.scan()
            self._scanned = time.monotonic()
        live = self._watch(self.index.live())
        self._queue([row for row in live if row["is_queued"]])
        self.passes += 1
        self.last_pass = time.monotonic()
        self.seconds += self.last_pass - began
        return bool(live)

    def scan(self) -> None:
        """Index what was started without the server, or before it was killed; forget what was removed."""
        found = {run.id: run for run in Runs.of(self.client.home).each()}
        known = self.index.ids()
        fresh = [run for name, run in found.items() if name not in known]
        for start in range(0, len(fresh), _CHUNK):
            self.index.add(fresh[start : start + _CHUNK])
        for name in known - found.keys():
            self.index.remove(name)

    def _run(self) -> None:
        while not self._stopped.is_set():
            busy = True
            try:
                busy = self.step()
            except Exception:  # the next pass may do better; readiness tells meanwhile
                _log.exception("a pass of the loop failed")
            self._awake.wait(_BRISK if busy else PERIOD)
            self._awake.clear()

    def _watch(self, rows: list[Row]) -> list[Row]:
        """Ask about all live runs at once, and bring their rows up to date; those that still live."""
        runs = [Run(self.client, self._directory(row)) for row in rows]
        states = {summary.id: summary for summary in self.client.refresh(runs, strict=False)}
        changed, living = {}, []
        for row, run in zip(rows, runs, strict=True):
            summary = states.get(row["id"])
            if summary is None:
                if not run.path.exists():
                    self.index.remove(row["id"])
                continue
            values = changing(summary, not summary.state.is_final and is_queued(run.directory))
            if values["is_queued"] and row["is_queued"]:
                values["reason"] = row["reason"]  # the queue's own, from its last pass
            if differs(row, values):
                changed[row["id"]] = values
            if not values["is_final"]:
                living.append(row | values)
        if changed:
            self.index.update(changed)
        return living

    def _queue(self, waiting: list[Row]) -> None:
        """Start whose turn it is, and write down why the others wait."""
        if not waiting:
            return
        at_once = [row for row in waiting if row["engine"] != "local"]  # its own queue decides
        local = [row for row in waiting if row["engine"] == "local"]
        decision = self.decide(self._state(local))
        by_id = {row["id"]: row for row in waiting}
        for name in (*(row["id"] for row in at_once), *decision.start):
            if self._stopped.is_set() or not self._launch(by_id[name]):
                break
        reasons = {
            name: {"reason": reason}
            for name, reason in decision.reasons.items()
            if by_id[name]["reason"] != reason
        }
        if reasons:
            self.index.update(reasons)

    def _state(self, rows: list[Row]) -> PoolState:
        free, size = {}, {}
        for kind, emulated in {(row["kind"], row["emulated"]) for row in rows}:
            pool = _pool(kind, emulated)
            size[pool], free[pool] = capacity(self.client.context, DeviceKind(kind), emulated)
        jobs = tuple(
            QueuedRun(
                row["id"], row["team"], row["owner"], _pool(row["kind"], row["emulated"]), row["devices"],
                row["submitted"], row["priority"], row["preemptible"],
            )
            for row in rows
        )  # fmt: skip
        return PoolState(jobs, free, size, self.people.quotas(), time.time())

    def _launch(self, row: Row) -> bool:
        """Launch one run; False when the devices were gone after all, and nobody else should try now."""
        run = Run(self.client, self._directory(row))
        try:
            started = self.client.launch(run, self._secrets(row, run))
        except TrainshedError as error:
            if error.code == BUSY:
                return False
            _log.warning("run %s cannot be launched: %s", run.id, error)
            self.client.refuse(run, f"it cannot be launched: {error.message}")
            started = False
        except OSError as error:  # a full disk or the like: it may pass, and others need not wait for it
            _log.warning("run %s could not be launched now: %s", run.id, error)
            return True
        if started:
            _log.info("run %s launched", run.id)
        self.wake()
        return True

    def _secrets(self, row: Row, run: Run) -> dict[str, str]:
        """What the job's owner stored under the names that it asks for."""
        wanted = load_fields(run.path / "job.yaml").get("secrets") or {}
        names = {name: reference["env"] for name, reference in wanted.items()}
        if not names:
            return {}
        values = self.keyring.secret_values(row["owner"], names.values())
        return {name: values[stored] for name, stored in names.items()}

    def _directory(self, row: Row) -> RunDirectory:
        return RunDirectory(self.client.home / "runs" / row["id"])


def _pool(kind: str, emulated: bool) -> str:
    return f"emulated-{kind}" if emulated and kind != DeviceKind.CPU.value else kind
