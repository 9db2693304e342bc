"""What a dead run left on this machine, and its end: containers, and processes that no sandbox enclosed.

Killed together, driver, guard and agents leave what ranks had started to nobody.
A process belongs to a run by the variables it was started with: the run's id and
its folder for reports. A job can write these, so no more follows from them than
the end of a process of the same user that is no older than the run. One that was
started with other variables is not found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from trainshed.engines.cluster import containers
from trainshed.runs.directory import RunDirectory

_LIMIT = 5.0
"""Seconds for killed processes to be gone; what starts others meanwhile is killed again until then."""
_SLACK = 2.0
"""Seconds by which clocks may differ that say when the run and when a process began."""


def end(run: RunDirectory) -> None:
    """Of a run of which no driver and no agent lives any more."""
    isolation = run.submission().isolation
    if isolation == "container":
        containers.remove_all(run.id)
    elif isolation == "plain" and run.path.stat().st_uid == os.getuid():
        _kill_all(run, time.monotonic() + _LIMIT)


def _kill_all(run: RunDirectory, deadline: float) -> None:
    spared = _ancestors()
    while left := [pid for pid in _numbers() if pid not in spared and _belongs(pid, run)]:
        for pid in left:
            _kill(pid, run)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _kill(pid: int, run: RunDirectory) -> None:
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if _belongs(pid, run):  # still: from here on the number cannot become another process's
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _belongs(pid: int, run: RunDirectory) -> bool:
    folder = Path(f"/proc/{pid}")
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        environ = (folder / "environ").read_bytes().split(b"\0")
        if os.fsencode(f"TRAINSHED_RUN_ID={run.id}") not in environ:
            return False
        reports = os.fsencode(f"TRAINSHED_METRICS_DIR={run.path}/")
        if not any(entry.startswith(reports) for entry in environ):
            return False
        state, *fields = (folder / "stat").read_text(errors="replace").rpartition(") ")[2].split()
        age = _uptime() - int(fields[18]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return False  # gone, or not ours to look into
    return state != "Z" and age < time.time() - run.submitted().time + _SLACK


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _numbers() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())


def _ancestors() -> set[int]:
    """This process and those above it: whoever looks may have been started by what is looked for."""
    found, pid = {os.getpid()}, os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()[1])
        except OSError:
            break
    return found
