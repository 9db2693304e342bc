"""What the Tester does with a request, independent of the transport: begin, take, commit, and judge in the background.

Whatever was acknowledged survives a kill at any moment. It knows no HTTP.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from trainshed.errors import RefusedError, TrainshedError
from trainshed.files import hold
from trainshed.tester.headbook import HeadBook
from trainshed.tester.inbox import ABANDONED, Inbox
from trainshed.tester.ledger import Ledger
from trainshed.tester.model import PART_BYTES, Refusal, Stored, same, sign, upload_of
from trainshed.tester.verify import Checker, judge

_TRIES = 3
_SWEEP = 3600.0
_JUDGES = 2
"""Checks at the same time, of different tests."""
_IDLE, _PAUSE = 60.0, 1.0

log = logging.getLogger(__name__)


class TesterService:
    """Everything a request may need: the ledger, the inbox, and the thread that judges."""

    def __init__(self, root: Path, max_bytes: int = 1 << 30) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = hold(root / "server.lock")
        if lock is None:
            raise RefusedError(f"another Tester already serves {root}", "stop it, or use another folder")
        self._lock = lock
        self.ledger, self.inbox = Ledger(root / "tester.sqlite"), Inbox(root, max_bytes)
        self.book = HeadBook(self.ledger)
        self.checkers = [Checker() for _ in range(_JUDGES)]
        self._work, self._over = threading.Condition(), threading.Event()
        self._judged: set[str] = set()
        """Tests of which a result is being judged."""
        self._spent: defaultdict[str, float] = defaultdict(float)
        """Seconds that checks of each test took."""
        self._tries: Counter[str] = Counter()
        self._locks = [threading.Lock() for _ in range(64)]
        self._counting = threading.Lock()
        self._swept = 0.0
        self._judges = [
            threading.Thread(target=self._judging, args=(number,), daemon=True) for number in range(_JUDGES)
        ]

    def start(self) -> None:
        """Take up what a killed Tester left: whole results without an entry, entries without a verdict."""
        self._sweep()
        for test, upload in self.inbox.whole():
            if self.ledger.result(test, upload) is None:
                with contextlib.suppress(TrainshedError, OSError):
                    self.ledger.test(test)
                    self._enter(test, upload)
        for thread in self._judges:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        self._wake()
        for thread in self._judges:
            thread.join(5.0)
        for checker in self.checkers:
            checker.close()
        os.close(self._lock)

    def begin(self, test: str, upload: str, manifest: bytes, signature: str, token: str) -> dict[str, Any]:
        if upload_of(manifest) != upload:
            raise Refusal(400, "upload-name", "the upload's name is not the SHA-256 of the manifest")
        if not same(sign(token, manifest), signature):
            raise Refusal(403, "signature", "the manifest's signature does not match the test's token")
        with self._alone(test, upload):
            if self.ledger.result(test, upload) is None:
                with self._counting:
                    self._make_room(test, upload)
                    self.inbox.begin(test, upload, manifest, signature)
                    if self.inbox.folder(test, upload).exists():  # moved, but then entering it failed
                        self._enter(test, upload)
                        self._wake()
            return self.state(test, upload)

    def state(self, test: str, upload: str) -> dict[str, Any]:
        found = self.ledger.result(test, upload)
        if found is not None:
            return {"state": found.state, "receipt": _receipt(found)}
        return {"state": "open", "part_bytes": PART_BYTES, "files": self.inbox.offsets(test, upload)}

    def take(self, test: str, upload: str, name: str, start: int, total: int, part: bytes) -> dict[str, Any]:
        with self._alone(test, upload):
            if self.ledger.result(test, upload) is not None:
                return {"offset": total}
            return {"offset": self.inbox.take(test, upload, name, start, total, part)}

    def commit(self, test: str, upload: str) -> dict[str, Any]:
        with self._alone(test, upload):
            found = self.ledger.result(test, upload)
            if found is None:
                self.inbox.complete(test, upload)
                with self._counting:
                    self._free_slots(test)
                    self.inbox.move(test, upload)
                    found = self._enter(test, upload)
                self._wake()
            return {"state": found.state, "receipt": _receipt(found)}

    def _make_room(self, test: str, upload: str) -> None:
        """Refuse an upload when no slot is free; an idle one is dropped for it."""
        free, beside = self._free_slots(test), self.inbox.open_beside(test, upload)
        if len(beside) >= free and not self.inbox.drop_abandoned(test, beside):
            text = f"no free slot beside {len(beside)} open uploads; finish one, or wait"
            raise Refusal(409, "enough-open", f"{text} until one was not touched for {ABANDONED:.0f} s")

    def _free_slots(self, test: str) -> int:
        """How many more results the test takes; refuse when none."""
        entry = self.ledger.test(test)
        if entry.closed:
            raise Refusal(409, "closed", f"test {test} is closed")
        free = entry.max_results - len(self.ledger.results(test))
        if free <= 0:
            raise Refusal(409, "enough", f"test {test} takes {entry.max_results} results, and has them all")
        return free

    def _enter(self, test: str, upload: str) -> Stored:
        arrived = self.inbox.arrived(test, upload)
        return self.ledger.add_result(
            Stored(test, upload, time.time(), arrived.files, arrived.bytes, arrived.signature)
        )

    def _judging(self, number: int) -> None:
        """Judge one result after another, never two of one test at a time: a slow one blocks only its own test."""
        while not self._over.is_set():
            if time.monotonic() - self._swept > _SWEEP:
                self._sweep()
            stored = self._next()
            if stored is None:
                with self._work:
                    self._work.wait(0 if self._over.is_set() else _IDLE)
                continue
            began = time.monotonic()
            folder, last = self.inbox.folder(stored.test, stored.upload), self._tries[stored.upload] >= _TRIES
            try:
                judge(self.ledger, self.book, self.checkers[number], stored, folder, last=last)
            except (sqlite3.Error, OSError, TrainshedError) as error:
                if not self._over.is_set():
                    # The result stays unjudged and is tried again.
                    log.warning("%s could not be checked: %s", stored.upload, error)
                    self._over.wait(_PAUSE)
            finally:
                with self._counting:
                    self._judged.discard(stored.test)
                    self._spent[stored.test] += time.monotonic() - began
                self._wake()

    def _next(self) -> Stored | None:
        """The oldest result of the test whose results took the least time so far."""
        try:
            waiting = self.ledger.unjudged()
        except sqlite3.Error as error:
            log.warning("results that wait for a check could not be listed: %s", error)
            return None
        with self._counting:
            free = [stored for stored in waiting if stored.test not in self._judged]
            if not free:
                return None
            chosen = min(free, key=lambda stored: (self._spent[stored.test], stored.received))
            self._judged.add(chosen.test)
            self._tries[chosen.upload] += 1
            return chosen

    def _wake(self) -> None:
        with self._work:
            self._work.notify_all()

    def _sweep(self) -> None:
        self._swept = time.monotonic()
        try:
            self.inbox.sweep()
        except OSError as error:
            log.warning("unfinished uploads could not be swept: %s", error)

    def _alone(self, test: str, upload: str) -> threading.Lock:
        """The lock that lets one request at a time at an upload."""
        return self._locks[hash((test, upload)) % len(self._locks)]


def _receipt(stored: Stored) -> dict[str, Any]:
    """What a participant may keep as proof that the result has arrived, and the verdict once there is one."""
    return {
        "test": stored.test,
        "upload": stored.upload,
        "received": stored.received,
        "files": stored.files,
        "bytes": stored.bytes,
        "findings": list(stored.findings),
    }
