"""The processes of a node: started in their own groups, watched, and stopped together with their descendants.

The agent is made the reaper of its descendants, so that a grandchild which
left its group and lost its parent is still found and stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainshed.agent.masking import Log
from trainshed.plan.model import ProcessPlan

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
"""What this process was given, and gives to those it starts."""


@dataclass
class Running:
    """A started process; `handle` becomes readable when it ends."""

    plan: ProcessPlan
    process: subprocess.Popen[bytes]
    handle: int
    log: Log
    started: float = field(default_factory=time.time)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has died."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep_private() -> None:
    """Keep this process' memory, variables and view of the machine from others of the same user.

    What it starts is readable again: starting a program resets this.
    """
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def allow_files(count: int) -> None:
    """Let this process hold that many open files, as far as the machine lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_files() -> int:
    """How many files this process may hold open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def restore_files() -> None:
    """In a process just forked: the limit its parent was given, not the one it took."""
    resource.setrlimit(resource.RLIMIT_NOFILE, _FILES)


def start(plan: ProcessPlan, env: Mapping[str, str], log: Log, argv: Sequence[str], cwd: str) -> Running:
    """Start one process with its log as standard output and error.

    The log's stream is the file itself wherever possible: then nothing stands between
    that could slow the process down, or lose lines when it is killed.
    """
    Path(cwd).mkdir(parents=True, exist_ok=True)
    with log.stream:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log.stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_agent,
        )
    return Running(plan, process, os.pidfd_open(process.pid), log)


def stop_all(running: list[Running], grace: float, pump: Callable[[float], object] = time.sleep) -> None:
    """SIGTERM to every group, up to `grace` seconds, then SIGKILL to all that is left of the node."""
    mine = {item.process.pid for item in running}
    for item in running:
        _signal_group(item.process.pid, signal.SIGTERM)
    for pid in descendants() - mine:
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and descendants():
        reap(mine)
        pump(0.05)
    kill_descendants(mine)
    for item in running:
        item.process.poll()


def kill_descendants(mine: set[int], limit: float = 5.0) -> None:
    """SIGKILL until no descendant is left, for at most `limit` seconds."""
    deadline = time.monotonic() + limit
    while (left := descendants()) and time.monotonic() < deadline:
        for pid in left:
            _signal(pid, signal.SIGKILL)
        reap(mine)
        time.sleep(0.01)


def reap(mine: set[int]) -> None:
    """Collect adopted orphans that have ended; processes in `mine` are left to their owner."""
    for pid in _zombies():
        if pid not in mine:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def kill_strays(known: set[int], limit: float = 5.0) -> None:
    """SIGKILL to what this process has adopted: all below it but the `known` children and theirs."""
    deadline = time.monotonic() + limit
    while (left := descendants(known)) and time.monotonic() < deadline:
        for pid in left:
            _signal(pid, signal.SIGKILL)
        reap(known)
        time.sleep(0.01)


def descendants(without: Collection[int] = ()) -> set[int]:
    """All living processes below this one (ended ones that nobody collected do not count).

    The processes in `without`, and those below them, are left out.

    Read from /proc and not with psutil: guards, starters and drivers need this and nothing else of it, and loading it
    costs each of them 10 ms of CPU, of which a thousand may start at once; the walk itself costs psutil twice as much
    (16 against 9 ms of CPU for 180 descendants among 350 processes, and this is repeated until nothing is left); and
    psutil leaves out what seems older than the process that asks, which must be stopped like any other.
    """
    children: dict[int, list[int]] = {}
    zombies = set()
    for pid, (state, parent) in _processes():
        children.setdefault(parent, []).append(pid)
        if state == "Z":
            zombies.add(pid)
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found and child not in without:
                found.add(child)
                todo.append(child)
    return found - zombies


def _zombies() -> list[int]:
    me = os.getpid()
    return [pid for pid, (state, parent) in _processes() if state == "Z" and parent == me]


def _processes() -> list[tuple[int, tuple[str, int]]]:
    result = []
    for entry in os.scandir("/proc"):
        name = entry.name
        if not name.isdigit():
            continue
        try:
            stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
        except OSError:
            continue
        state, parent = stat.rpartition(") ")[2].split(" ", 2)[:2]
        result.append((int(name), (state, int(parent))))
    return result


def is_starved(pid: int) -> bool:
    """Whether a process waits for the processor or the disk rather than for nothing at all."""
    with contextlib.suppress(OSError, IndexError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "stat").read_text().rpartition(") ")[2][0] in "RD":
                return True
    return False


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _die_with_agent() -> None:
    end_with_parent()
    restore_files()


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
