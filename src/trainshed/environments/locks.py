"""A lock between processes on one file, waited for with an end.

The kernel frees it when its holders die, so a killed maker blocks no one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.errors import TrainshedError
from trainshed.files import hold

POLL_SECONDS = 0.2


@contextmanager
def held(path: Path, seconds: float, on_wait: Callable[[str, float], None]) -> Iterator[int]:
    """Holds the lock and yields its descriptor.

    A child given that descriptor keeps the lock until it ends too: what it
    still writes after its parent was killed meets no second writer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _wait(path, seconds, on_wait)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(path: Path, seconds: float, on_wait: Callable[[str, float], None]) -> int:
    started = time.monotonic()
    while True:
        descriptor = hold(path)
        if descriptor is not None:
            return descriptor
        waited = time.monotonic() - started
        holder = path.read_bytes()[:20].decode(errors="replace").strip() or "unknown"
        if waited >= seconds:
            raise TrainshedError(
                f"waited {waited:.0f} s for process {holder}, which works on the same environment",
                f"wait for it or end it, then try again; its lock is {path}",
                code="busy",
            )
        on_wait(holder, waited)
        time.sleep(min(POLL_SECONDS, max(seconds - waited, 0.01)))
