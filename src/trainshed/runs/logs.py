"""Reading the logs of a run's processes, finished or growing.

What a reader may rely on:
1. Every line a process wrote is given once, in the order it was written.
2. Of a line redrawn with carriage returns (a progress bar) only the last
   drawing is given, and while it is being redrawn at most one a second.
3. A last line without an end is given when its log has stopped growing for good.
4. Memory stays bounded: a line longer than 64 KiB is given in pieces.
5. Every line has a time (`runs/logtimes.py` says which). What is there when a reader begins is
   given in the order of these times over all processes; what comes later, as it comes.
"""

from __future__ import annotations

import contextlib
import glob
import heapq
import os
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from trainshed.runs.directory import RunDirectory
from trainshed.runs.logtimes import Stamps

_CHUNK = 1 << 16
_LONGEST = 1 << 16
_REDRAW = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one process."""

    node: int
    process: str
    text: str
    time: float = 0.0
    """When it was first seen in its log, in seconds since 1970."""
    end: int = field(default=0, compare=False)
    """Where its log goes on after it, in bytes: a reader that begins there misses and repeats nothing."""


class LogReader:
    """One growing file, read from where the last read ended."""

    def __init__(
        self, node: int, path: Path, last: int | None = None, start: tuple[int, int] | None = None
    ) -> None:
        """`last`: begin with the last N lines of what is there. `start`: where another reader ended,
        as its `attempts` and the `end` of its last line."""
        self.node, self.process, self.path = node, path.stem, path
        self._offset = 0 if last is None else _start_of_last(path, last)
        self._stamps = Stamps(path)
        self._inode = 0
        aside = self._set_aside()
        if start is not None:
            aside, self._offset = aside[: start[0]], start[1]
        self._earlier = set(aside)
        self._rest = b""
        self._redrawn = 0.0

    @property
    def attempts(self) -> int:
        """How many logs of earlier attempts of the process lie behind this reader."""
        return len(self._earlier)

    def lines(self, final: bool = False) -> Iterator[Line]:
        """What has come since the last call; with `final` also an unfinished last line."""
        while chunk := (yield from self._next()):
            self._offset += len(chunk)
            yield from self._split(chunk)
        if final:
            yield from self._give_rest()

    def _next(self) -> Generator[Line, None, bytes]:
        """The next piece; the file is open only for that, as a run may have thousands of logs."""
        try:
            with self.path.open("rb") as stream:
                info = os.fstat(stream.fileno())
                if info.st_ino != self._inode or info.st_size < self._offset:
                    yield from self._turn(info)
                stream.seek(self._offset)
                return stream.read(_CHUNK)
        except FileNotFoundError:
            yield from self._finish_earlier()
            return b""

    def _turn(self, info: os.stat_result) -> Iterator[Line]:
        """Another file has the log's name: the next attempt's, or the same one copied again and longer."""
        self._inode = info.st_ino
        yield from self._finish_earlier()
        if info.st_size < self._offset:
            yield from self._give_rest()
            self._offset, self._stamps = 0, Stamps(self.path)

    def _finish_earlier(self) -> Iterator[Line]:
        """What was not yet read of logs that have been set aside since."""
        for path in self._set_aside():
            if path not in self._earlier:
                self._earlier.add(path)
                self._stamps = Stamps(path)
                with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
                    yield from self._read(stream)
                yield from self._give_rest()
                self._offset, self._stamps = 0, Stamps(self.path)

    def _set_aside(self) -> list[Path]:
        """The logs of earlier attempts of the same process."""
        return sorted(self.path.parent.glob(f"{glob.escape(self.path.stem)}.attempt-*.log"), key=_order)

    def _read(self, stream: BinaryIO) -> Iterator[Line]:
        stream.seek(self._offset)
        while chunk := stream.read(_CHUNK):
            self._offset += len(chunk)
            yield from self._split(chunk)

    def _give_rest(self) -> Iterator[Line]:
        if self._rest:
            rest, self._rest = self._rest, b""
            yield self._line(rest, self._offset)

    def _split(self, chunk: bytes) -> Iterator[Line]:
        end = self._offset - len(chunk) - len(self._rest)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            end += len(line) + 1
            yield self._line(line, end)
        if len(self._rest) > _LONGEST:
            head, _, tail = self._rest.rpartition(b"\r")
            if head and len(tail) <= _LONGEST:
                self._rest = tail
            else:
                yield self._line(self._rest, self._offset)
                self._rest = b""
        elif b"\r" in self._rest and time.monotonic() - self._redrawn > _REDRAW:
            head, _, last = self._rest.rpartition(b"\r")
            if head.strip(b"\r"):
                self._rest = last
                self._redrawn = time.monotonic()
                yield self._line(head, self._offset)

    def _line(self, raw: bytes, end: int) -> Line:
        last = raw.rstrip(b"\r").rpartition(b"\r")[2]
        return Line(self.node, self.process, last.decode("utf-8", "replace"), self._stamps.at(end), end)


def _start_of_last(path: Path, count: int) -> int:
    """Where the last `count` lines of a file begin; of lines longer than a reader is given, not before their pieces."""
    try:
        with path.open("rb") as stream:
            position = stream.seek(0, 2)
            if position == 0 or count <= 0:
                return position
            first = max(0, position - count * _LONGEST)
            stream.seek(position - 1)
            wanted = count + (stream.read(1) == b"\n")
            while position > first:
                size = min(_CHUNK, position - first)
                position -= size
                stream.seek(position)
                block = stream.read(size)
                found = block.count(b"\n")
                if found >= wanted:
                    for _ in range(wanted):
                        block = block[: block.rindex(b"\n")]
                    return position + len(block) + 1
                wanted -= found
            return first
    except FileNotFoundError:
        return 0


def tail(path: Path, count: int = 20) -> tuple[str, ...]:
    """The last lines of a log, reading no more than its last 64 KiB."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _LONGEST))
            data = stream.read(_LONGEST)
    except FileNotFoundError:
        return ()
    if size > _LONGEST:
        data = data.partition(b"\n")[2] or data
    lines = (line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n"))
    return tuple(line.decode("utf-8", "replace") for line in lines if line.strip())[-count:]


def log_files(run: RunDirectory, rank: int | None = None, node: int | None = None) -> list[tuple[int, Path]]:
    """The logs of the run's processes, by node and rank; the agents' own are left out."""
    result = []
    for index in run.node_indexes() if node is None else [node]:
        for path in sorted(run.node(index).glob("*.log"), key=_order):
            if path.stem == "agent" or ".attempt-" in path.name or not path.is_file():
                continue
            if rank is None or path.stem == f"rank-{rank}":
                result.append((index, path))
    return result


def follow(
    run: RunDirectory,
    ended: Callable[[], bool],
    rank: int | None = None,
    node: int | None = None,
    pause: float = 0.1,
    last: int | None = None,
) -> Iterator[Line]:
    """Lines as they are written, of logs as they appear, until the run has ended and all is read.

    With `last`, begin with the last N lines of each log that is there.
    """
    readers: dict[Path, LogReader] = {}
    is_first = True
    while True:
        last_round = ended()
        for index, path in log_files(run, rank, node):
            if path not in readers:
                readers[path] = LogReader(index, path, last if is_first else None)
        found = [reader.lines(final=last_round) for reader in readers.values()]
        if is_first:
            yield from heapq.merge(*found, key=lambda line: line.time)
        else:
            for lines in found:
                yield from lines
        if last_round:
            return
        is_first = False
        time.sleep(pause)


def _order(path: Path) -> tuple[int, str]:
    number = path.stem.rpartition("-")[2]
    return (int(number) if number.isascii() and number.isdigit() else -1, path.stem)
