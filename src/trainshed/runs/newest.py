"""Summaries of any number of runs, newest first, in memory that hardly grows with their number.

Which run is the newest is known only when all have been read. So they are sorted
in blocks that wait in a temporary file, outside of any home, and are merged while
they are given out. Where that file cannot be written (a full disk is no reason to
list no runs) blocks stay in memory.
"""

from __future__ import annotations

import errno
import heapq
import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice

from trainshed.runs.summary import Summary

_BLOCK = 256
"""Summaries that are sorted at a time."""
_GROUP = 4
"""Summaries that are read back at a time from each block."""
_FAN = 64
"""So many blocks are merged into a larger one: what is held is _BLOCK + _FAN x _GROUP for each level of them."""
_SIZE = 4


def newest_first(found: Iterable[Summary]) -> Iterator[Summary]:
    """The same summaries by their time of submission; all are read before the first is given."""
    source = iter(found)
    block = _sorted(islice(source, _BLOCK))
    if len(block) < _BLOCK:
        yield from block
        return
    with _Blocks() as blocks:
        while block:
            blocks.add(block)
            block = _sorted(islice(source, _BLOCK))
        yield from blocks.merged()


class _Blocks:
    """Sorted blocks in a file that has no name. Those of one level are alike in size."""

    def __init__(self) -> None:
        self._levels: list[list[Iterable[Summary]]] = [[]]
        self._file: int | None = None

    def __enter__(self) -> _Blocks:
        try:
            with tempfile.TemporaryFile() as made:
                self._file = os.dup(made.fileno())
        except OSError:
            self._file = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def add(self, block: Iterable[Summary], level: int = 0) -> None:
        if level == len(self._levels):
            self._levels.append([])
        here = self._levels[level]
        here.append(self._kept(block))
        if len(here) == _FAN:
            self._levels[level] = []
            self.add(_merged(here), level + 1)

    def merged(self) -> Iterator[Summary]:
        return _merged(block for level in self._levels for block in level)

    def _kept(self, block: Iterable[Summary]) -> Iterable[Summary]:
        if self._file is None:
            return list(block)
        source = iter(block)
        begin = end = os.fstat(self._file).st_size
        rest: list[Summary] = []
        try:
            while rest := list(islice(source, _GROUP)):
                data = pickle.dumps(rest, pickle.HIGHEST_PROTOCOL)
                end += _write(self._file, len(data).to_bytes(_SIZE, "big") + data)
        except OSError:
            return [*_read(self._file, begin, end), *rest, *source]
        return _read(self._file, begin, end)


def _write(file: int, data: bytes) -> int:
    """At the end of the file, whole or not at all."""
    end = os.fstat(file).st_size
    if os.pwrite(file, data, end) < len(data):
        os.ftruncate(file, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return len(data)


def _read(file: int, at: int, end: int) -> Iterator[Summary]:
    while at < end:
        size = int.from_bytes(os.pread(file, _SIZE, at), "big")
        yield from pickle.loads(os.pread(file, size, at + _SIZE))  # noqa: S301 (written by this process)
        at += _SIZE + size


def _merged(blocks: Iterable[Iterable[Summary]]) -> Iterator[Summary]:
    return heapq.merge(*blocks, key=_age, reverse=True)


def _sorted(summaries: Iterable[Summary]) -> list[Summary]:
    return sorted(summaries, key=_age, reverse=True)


def _age(summary: Summary) -> tuple[float, str]:
    return summary.submitted or 0.0, summary.id
