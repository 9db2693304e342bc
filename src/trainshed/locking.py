"""Waiting for a lock, with an end: one place for everything that several processes do one at a time.

Standard library only and old-fashioned syntax: scripts in foreign environments reach the store, which uses this.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.errors import TrainshedError


@contextmanager
def locked(path: Path, seconds: float, what: str) -> Iterator[None]:
    """Hold the lock file; TrainshedError names `what` when others hold it for longer than `seconds`.

    The kernel frees a lock whose holder died, so only living holders are waited for.
    """
    deadline = time.monotonic() + seconds
    with open(path, "a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    hint = f"see who holds it: fuser {path}"
                    raise TrainshedError(f"{what} is held by another process", hint, code="busy") from None
                time.sleep(0.02)
        yield
