"""When the lines of a log were written, without a hand on the log itself.

Ranks write straight into their logs. Beside each, `rank-0.times` holds lines
`TIME SIZE`: at TIME (seconds, by the node's clock) the log was SIZE bytes long. An agent looks
at most once a second, so a line has the time at which it was first seen, up to a second late.
"""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_left
from pathlib import Path

from trainshed.files import read_regular

PERIOD = 1.0
_LARGEST = 64 << 20


def times_path(log: Path) -> Path:
    return log.with_suffix(".times")


class LogTimes:
    """Notes how long the logs of a node are; costs one `stat` per log and second, and never fails a run."""

    def __init__(self) -> None:
        self._sizes: dict[Path, int] = {}
        self._due = 0.0

    def watch(self, log: Path) -> None:
        self._sizes[log] = 0

    def sample(self, final: bool = False) -> None:
        if not final and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PERIOD
        for log, known in self._sizes.items():
            with contextlib.suppress(OSError):
                size = log.stat().st_size
                if size == known:
                    continue
                line = b"%.2f %d\n" % (time.time(), size)
                handle = os.open(
                    times_path(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
                )
                try:
                    os.write(handle, line)
                finally:
                    os.close(handle)
                self._sizes[log] = size


class Stamps:
    """The times of one log's lines."""

    def __init__(self, log: Path) -> None:
        self._log, self._path = log, times_path(log)
        self._read = 0
        self._due = self._last = 0.0
        self._sizes: list[int] = []
        self._times: list[float] = []

    def at(self, end: int) -> float:
        """When a line that ends at this byte was first seen; one that was not yet seen: the log's last write."""
        if not self._sizes or end > self._sizes[-1]:
            self._refresh()
        index = bisect_left(self._sizes, end)
        return self._times[index] if index < len(self._times) else self._last

    def _refresh(self) -> None:
        """Look at the files again, but not for every one of many new lines."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PERIOD / 4
        self._load()
        with contextlib.suppress(OSError):
            self._last = self._log.stat().st_mtime

    def _load(self) -> None:
        try:
            data = read_regular(self._path, _LARGEST, self._read)
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.split(b"\n"):
            with contextlib.suppress(ValueError):
                moment, size = line.split()
                self._times.append(float(moment))
                self._sizes.append(int(size))


def last_written(log: Path) -> float | None:
    """When a process last wrote to its log; None if it never did."""
    try:
        info = log.stat()
    except OSError:
        return None
    return info.st_mtime if info.st_size else None
