"""A lock between processes on one file, waited for with an end.

The kernel frees it when its holders die, so a killed maker blocks nobody.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.errors import TrainshedError

POLL_SECONDS = 0.2


@contextmanager
def held(path: Path, seconds: float, on_wait: Callable[[str, float], None]) -> Iterator[int]:
    """Holds the lock and yields its descriptor.

    A child given that descriptor keeps the lock until it ends too: what it
    still writes after its parent was killed meets no second writer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait(descriptor, path, seconds, on_wait)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, seconds: float, on_wait: Callable[[str, float], None]) -> None:
    started = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        waited = time.monotonic() - started
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
        if waited >= seconds:
            raise TrainshedError(
                f"waited {waited:.0f} s for process {holder}, which works on the same environment",
                f"wait for it or end it, then try again; its lock is {path}",
                code="busy",
            )
        on_wait(holder, waited)
        time.sleep(min(POLL_SECONDS, max(seconds - waited, 0.01)))
