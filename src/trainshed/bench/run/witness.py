"""Sends the heads of a run's chain to a remote witness during the run.

A thread of the process that waits for the run: neither the job nor its agents
know the witness, its address or its token. A network that is away costs heads,
never the run; the newest head stands for all before it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from trainshed.errors import TrainshedError
from trainshed.runs.chain import MOST_BYTES

_PERIOD, _LONGEST_PERIOD = 1.0, 15.0
_LAST_SECONDS = 60.0
"""How long the last head is tried after the run has ended."""


class WitnessAway(TrainshedError):
    """The witness does not answer just now: worth another try."""

    code = "witness-away"


class Witness(Protocol):
    """A Tester, as far as a run needs one."""

    def nonce(self) -> str:
        """What the next run begins with."""

    def tell(self, nonce: str, seq: int, digest: str, closed: bool) -> None:
        """Note a head. WitnessAway: try again; any other TrainshedError: it will never be taken."""


class Forwarder:
    """Sends the newest head of a chain about once a second, until the run has ended."""

    def __init__(
        self,
        witness: Witness,
        nonce: str,
        find: Callable[[], Path | None],
        say: Callable[[str], None],
        last_seconds: float = _LAST_SECONDS,
    ) -> None:
        self._witness, self._nonce, self._find, self._say = witness, nonce, find, say
        self._last_seconds = last_seconds
        self._path: Path | None = None
        self._read = self._seq = 0
        self._rest = b""
        self._newest: tuple[int, str, bool] | None = None
        self._sent = -1
        self._is_away = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="witness", daemon=True)

    def __enter__(self) -> Forwarder:
        self._thread.start()
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        """Wait until the last head was taken; not forever, and not when the run is given up."""
        self._over.set()
        if problem is None:
            self._thread.join(self._last_seconds + _LONGEST_PERIOD)

    def _repeat(self) -> None:
        period, deadline = _PERIOD, 0.0
        while True:
            if deadline:
                time.sleep(period)
            elif self._over.wait(period):
                deadline = time.monotonic() + self._last_seconds
            try:
                self._read_on()
                self._tell()
                period = _PERIOD
            except (WitnessAway, OSError) as error:
                period = min(2 * period, _LONGEST_PERIOD)
                self._note(error)
            except TrainshedError as error:
                self._say(
                    f"the Tester accepts no more heads: {error.message}; the result will not be attested"
                )
                return
            if deadline and (self._is_settled() or time.monotonic() > deadline):
                return

    def _is_settled(self) -> bool:
        """Whether everything that there is was sent."""
        return self._newest is None or self._sent == self._newest[0]

    def _read_on(self) -> None:
        self._path = self._path or self._find()
        if self._path is None or not self._path.exists():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._read)
            data = stream.read(MOST_BYTES)
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._newest = (self._seq, hashlib.sha256(line).hexdigest(), _closes(line))
            self._seq += 1

    def _tell(self) -> None:
        if self._newest is not None and self._newest[0] > self._sent:
            seq, digest, closed = self._newest
            self._witness.tell(self._nonce, seq, digest, closed)
            self._sent, self._is_away = seq, False

    def _note(self, error: Exception) -> None:
        if not self._is_away:
            self._is_away = True
            reason = error.message if isinstance(error, TrainshedError) else str(error)
            self._say(f"heads of the chain are delayed: {reason}")


def _closes(line: bytes) -> bool:
    try:
        return bool(json.loads(line).get("key"))
    except (ValueError, AttributeError):
        return False
