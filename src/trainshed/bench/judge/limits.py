"""What a folder may be before anything of it is read: regular files, few enough, small enough.

A result is somebody else's data. Whatever goes beyond these limits is refused
unread; within them a check takes bounded time and memory.
"""

from __future__ import annotations

import os
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from trainshed.bench.judge.rules import MAX_RUNS
from trainshed.bench.measure.reading import MAX_BYTES
from trainshed.bench.result import Reason
from trainshed.errors import TrainshedError

MAX_FILES = 20_000
MAX_DEPTH = 12
MAX_TOTAL_BYTES = 4 << 30
SMALL_FILES = {
    "manifest.json": 16 << 20,
    "rules.json": 1 << 20,
    "session.json": 1 << 20,
    "system.json": 1 << 20,
    "result.json": 64 << 20,
}
CHECK_BYTES = 2 << 30
"""Address space of a process that checks."""
CHECK_CPU_SECONDS = 300


class CheckTooLong(TrainshedError):
    """A check used more processor time than it may."""

    code = "check-failed"


def folder_faults(folder: Path) -> list[Reason]:
    """Why a folder is not even looked into, or nothing."""
    found: list[Reason] = []
    files = total = 0
    for path, depth, info in _entries(folder):
        name = path.relative_to(folder).as_posix()[:200]
        if stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode):
            files += 1  # links are refused by the manifest, by name
        elif not stat.S_ISREG(info.st_mode):
            found.append(Reason(code="file-kind", message=f"{name} is neither a file nor a folder"))
        else:
            files, total = files + 1, total + info.st_size
            most = SMALL_FILES.get(name, MAX_BYTES)
            if info.st_size > most:
                text = f"{name} has {info.st_size} bytes, at most {most} are read"
                found.append(Reason(code="folder-limits", message=text))
        if depth > MAX_DEPTH or files > MAX_FILES or total > MAX_TOTAL_BYTES or len(found) >= 20:
            text = (
                f"a result has at most {MAX_FILES} files and folders, {MAX_DEPTH} levels and "
                f"{MAX_TOTAL_BYTES >> 30} GiB; this one exceeds that"
            )
            found.append(Reason(code="folder-limits", message=text))
            break
    runs = sum(1 for _ in (folder / "runs").iterdir()) if (folder / "runs").is_dir() else 0
    if runs > MAX_RUNS:
        text = f"the folder holds {runs} runs, at most {MAX_RUNS} are measured"
        found.append(Reason(code="folder-limits", message=text))
    return found


@contextmanager
def bounded() -> Iterator[None]:
    """Hold this process to the memory and processor time of one check; only for the main thread.

    Memory beyond the limit is a MemoryError, time beyond it a CheckTooLong.
    """

    def over(_number: int, _frame: FrameType | None) -> None:
        raise CheckTooLong(
            f"the check used more than {CHECK_CPU_SECONDS} s of processor time", "the result is not usable"
        )

    memory = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, over)
    try:
        limit = CHECK_BYTES if memory[1] == resource.RLIM_INFINITY else min(CHECK_BYTES, memory[1])
        resource.setrlimit(resource.RLIMIT_AS, (limit, memory[1]))
        signal.setitimer(signal.ITIMER_PROF, CHECK_CPU_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, memory)


def _entries(folder: Path, depth: int = 1) -> Iterator[tuple[Path, int, os.stat_result]]:
    """Everything below a folder, links not followed, never deeper than one level too deep."""
    with os.scandir(folder) as entries:
        for entry in entries:
            info = entry.stat(follow_symlinks=False)
            yield Path(entry.path), depth, info
            if stat.S_ISDIR(info.st_mode) and depth <= MAX_DEPTH:
                yield from _entries(Path(entry.path), depth + 1)
