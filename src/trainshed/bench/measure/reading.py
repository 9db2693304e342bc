"""Reads untrusted JSON files: bounded, and never a traceback.

Whatever cannot be read is a ValueError with a short message. Knows nothing of runs.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 256 << 20
"""More than any file of a result has: beyond it nothing is read into memory."""
_CHUNK_LINES = 4096


def parse(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError also for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes; a pipe or a device is never waited for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ValueError(error.strerror or "it cannot be opened") from error
    with os.fdopen(handle, "rb") as stream:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        if found.st_size > most:
            raise ValueError(f"it has {found.st_size} bytes, at most {most} are read")
        return stream.read(found.st_size)  # not `most`: so much would be allocated first


def read_object(path: Path, most: int = MAX_BYTES) -> dict[str, Any]:
    """The JSON object that a file holds."""
    value = parse(read_bytes(path, most))
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def lines(data: bytes) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(number, object) of every line that is not empty; None for a line that is not a JSON object.

    Many lines are parsed at once, which is several times faster than one by one.
    """
    chunk: list[tuple[int, bytes]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line and not line.isspace():
            chunk.append((number, line))
            if len(chunk) == _CHUNK_LINES:
                yield from _objects(chunk)
                chunk = []
    yield from _objects(chunk)


def _objects(chunk: list[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    try:
        values = parse(b"[" + b",".join(line for _, line in chunk) + b"]")
    except ValueError:
        values = [_object(line) for _, line in chunk]
    if len(values) != len(chunk):  # a line that holds several values is not one object
        values = [_object(line) for _, line in chunk]
    for (number, _), value in zip(chunk, values, strict=True):
        yield number, value if isinstance(value, dict) else None


def _object(line: bytes) -> Any:
    try:
        return parse(line)
    except ValueError:
        return None


def finite(value: Any) -> float:
    """The number that a value is; ValueError, TypeError or OverflowError if nothing can be calculated with it."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not finite")
    return number


def reading(value: object) -> float | None:
    """A reading; None where there is none that can be calculated with."""
    try:
        return finite(value) if isinstance(value, int | float) else None
    except (ValueError, OverflowError):
        return None
