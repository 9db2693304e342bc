"""Stands above a driver, ends it if it is frozen, and clears up after it.

A killed driver's agents stop by themselves, and a killed agent's descendants
come to the driver. Killed together, they would leave orphaned descendants:
here they come to this process, which outlives both and does nothing else. A
frozen driver would hold its run forever, and no other process may wait for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import Counter
from pathlib import Path

from trainshed.agent import processes

NAME = "trainshed-guard"
"""What process listings call it, which otherwise looks like its driver."""
_CLOSING = 3600.0
"""The longest agents without a driver may take to save outputs."""
_TICK = 0.2
_LOOK = 2.0
_LOOKS = 30
"""A process found frozen (SIGSTOP) at so many looks in a row is killed: a minute, if this process itself gets its time."""


def stand_by() -> None:
    """Go on as the driver in a child of this process; the parent never returns, and ends with its code."""
    processes.adopt_orphans()
    child = os.fork()
    if child == 0:
        return
    _become_guard()
    _await(child)
    status = os.waitpid(child, 0)[1]
    _clear_up()
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def be_watched() -> None:
    """Leave a guard beside this process, where a cluster clears up after it: it only ends a frozen driver."""
    driver = os.getpid()
    if os.fork():
        return
    processes.end_with_parent()
    _become_guard()
    if os.getppid() == driver:
        _await(driver)
    os._exit(0)


def wake(pid: int) -> bool:
    """Resume a guard that was frozen; False if that process is not a guard."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text().strip() == NAME:
            os.kill(pid, signal.SIGCONT)
            return True
    return False


def is_frozen(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].startswith("T")
    return False


def _become_guard() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME)
    _drop_files()


def _await(driver: int) -> None:
    """Until the driver has ended; it is killed when it is frozen."""
    handle, looks = os.pidfd_open(driver), 0
    while not select.select([handle], [], [], _LOOK)[0]:
        looks = looks + 1 if is_frozen(driver) else 0
        if looks > _LOOKS:
            _signal(driver, signal.SIGKILL)
    os.close(handle)


def _clear_up() -> None:
    """Until nothing is left: agents may close their nodes in order, all else is killed, and what is frozen."""
    deadline = time.monotonic() + _CLOSING
    frozen: Counter[int] = Counter()
    while time.monotonic() < deadline:
        kept = {pid for pid in processes.descendants() if _is_agent(pid)}
        processes.kill_strays(kept)
        if not kept:
            return
        for pid in kept:
            frozen[pid] = frozen[pid] + 1 if is_frozen(pid) else 0
            if frozen[pid] * _TICK > _LOOKS * _LOOK:
                _signal(pid, signal.SIGKILL)
        time.sleep(_TICK)
    processes.kill_descendants(set())


def _is_agent(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"trainshed.agent.main" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _drop_files() -> None:
    """Locks, leases and the task belong to the driver: what it held must be free when it is gone."""
    with open(os.devnull, "rb+") as nothing:
        for number in (0, 1, 2):
            os.dup2(nothing.fileno(), number)
    os.closerange(3, processes.open_files())
