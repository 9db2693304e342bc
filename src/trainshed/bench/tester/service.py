"""What the Tester does with a request, whatever brought it: begin, take, commit, and judge in the background.

Whatever was acknowledged survives a kill at any moment. It knows no HTTP.
"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from trainshed.bench.tester.inbox import ABANDONED, Inbox
from trainshed.bench.tester.ledger import Ledger
from trainshed.bench.tester.model import PART_BYTES, Refusal, Stored, same, sign, upload_of
from trainshed.bench.tester.verify import Checker, judge
from trainshed.errors import RefusedError, TrainshedError

_TRIES = 3
_SWEEP = 3600.0


class Service:
    """Everything a request may need: the ledger, the inbox, and the thread that judges."""

    def __init__(self, root: Path, max_bytes: int = 1 << 30) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_file = (root / "server.lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusedError(
                f"another Tester already serves {root}", "stop it, or use another folder"
            ) from None
        self.ledger, self.inbox = Ledger(root / "tester.sqlite"), Inbox(root, max_bytes)
        self.checker = Checker()
        self._work, self._over = threading.Event(), threading.Event()
        self._locks = [threading.Lock() for _ in range(64)]
        self._counting = threading.Lock()
        self._swept = 0.0
        self._judge = threading.Thread(target=self._judging, daemon=True)

    def start(self) -> None:
        """Take up what a killed Tester left: whole results without an entry, entries without a verdict."""
        self._sweep()
        for test, upload in self.inbox.whole():
            if self.ledger.result(test, upload) is None:
                with contextlib.suppress(TrainshedError, OSError):
                    self.ledger.test(test)
                    self._enter(test, upload)
        self._work.set()
        self._judge.start()

    def stop(self) -> None:
        self._over.set()
        self._work.set()
        self._judge.join(5.0)
        self.checker.close()
        self._lock_file.close()

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
                        self._work.set()
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
                    self._free_places(test)
                    self.inbox.move(test, upload)
                    found = self._enter(test, upload)
                self._work.set()
            return {"state": found.state, "receipt": _receipt(found)}

    def _make_room(self, test: str, upload: str) -> None:
        """Refuse an upload that no place is left for; one that nobody goes on with gives its place up."""
        free, beside = self._free_places(test), self.inbox.open_beside(test, upload)
        if len(beside) >= free and not self.inbox.drop_abandoned(test, beside):
            text = f"no place is left beside {len(beside)} open uploads; finish one, or wait"
            raise Refusal(409, "enough-open", f"{text} until one was not touched for {ABANDONED:.0f} s")

    def _free_places(self, test: str) -> int:
        """How many more results the test takes; refuse when none."""
        asked = self.ledger.test(test)
        if asked.closed:
            raise Refusal(409, "closed", f"test {test} is closed")
        free = asked.max_results - len(self.ledger.results(test))
        if free <= 0:
            raise Refusal(409, "enough", f"test {test} takes {asked.max_results} results, all are here")
        return free

    def _enter(self, test: str, upload: str) -> Stored:
        here = self.inbox.arrived(test, upload)
        return self.ledger.add_result(
            Stored(test, upload, time.time(), here.files, here.bytes, here.signature)
        )

    def _judging(self) -> None:
        tries: Counter[str] = Counter()
        while not self._over.is_set():
            self._work.wait(60.0)
            self._work.clear()
            if time.monotonic() - self._swept > _SWEEP:
                self._sweep()
            for stored in self.ledger.unjudged():
                if self._over.is_set():
                    return
                tries[stored.upload] += 1
                folder = self.inbox.folder(stored.test, stored.upload)
                try:
                    judge(self.ledger, self.checker, stored, folder, last=tries[stored.upload] >= _TRIES)
                except (sqlite3.Error, OSError, TrainshedError) as error:
                    if not self._over.is_set():
                        # The result stays unjudged and is tried again within a minute.
                        print(f"{stored.upload} could not be checked: {error}", file=sys.stderr)

    def _sweep(self) -> None:
        self._swept = time.monotonic()
        try:
            self.inbox.sweep()
        except OSError as error:
            print(f"unfinished uploads could not be swept: {error}", file=sys.stderr)

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
