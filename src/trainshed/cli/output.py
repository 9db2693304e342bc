"""How commands show things: plain text for programs, tables and colours only on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

_LAID_OUT = 200
"""Rows of a table that are fitted to the terminal; those after them have the columns of these."""
_INDENT = "    "


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_json_list(values: Iterable[Any]) -> None:
    """The same for a list of any length, of which only one member is held at a time."""
    comma = ""
    for value in values:
        text = json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n  ")
        sys.stdout.write(f"{comma or '['}\n  {text}")
        comma = ","
    print("\n]" if comma else "[]")


def printable(text: str) -> str:
    """One line of untrusted text (of a job, a store, a file): nothing in it may control the terminal."""
    if text.isprintable():
        return text
    from unicodedata import category

    # The narrow spaces within our own numbers are harmless, though Python would not print them.
    return "".join(c if c.isprintable() or category(c) == "Zs" else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines elsewhere; rows are printed as they come, however many.

    On a narrow terminal, columns that do not fit go to further lines of their row: nothing is left out.
    """
    rows = ([printable(cell) for cell in row] for row in rows)
    if not sys.stdout.isatty():
        print("\t".join(columns))
        for row in rows:
            print("\t".join(row))
        return
    from rich.cells import cell_len

    rest = iter(rows)
    first = list(islice(rest, _LAID_OUT))
    widths = [max(map(cell_len, column)) for column in zip(columns, *first, strict=True)]
    groups = _lines(widths, shutil.get_terminal_size().columns)
    bold, plain = ("", "") if os.environ.get("NO_COLOR") else ("\x1b[1m", "\x1b[0m")
    for row in chain([columns], first, rest):
        for group in groups:
            cells = [row[i] + " " * (widths[i] - cell_len(row[i])) for i in group]
            line = ("" if group is groups[0] else _INDENT) + "  ".join(cells).rstrip()
            if line.strip():
                print(f"{bold}{line}{plain}" if row is columns else line)


def _lines(widths: Sequence[int], room: int) -> list[list[int]]:
    """Which columns stand on which line of a row."""
    lines: list[list[int]] = [[]]
    used = 0
    for index, width in enumerate(widths):
        if lines[-1] and used + 2 + width > room:
            lines.append([])
            used = len(_INDENT)
        used += width + (2 if lines[-1] else 0)
        lines[-1].append(index)
    return lines


def size(count: float) -> str:
    """Bytes as people read them: `12 B`, `3.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def since(stamp: float | None, until: float | None = None) -> str:
    """`3m12s` between two moments; empty when the first is not known."""
    if stamp is None:
        return ""
    seconds = max(0, int((until or time.time()) - stamp))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    first = next((i for i, (value, _) in enumerate(parts) if value), 3)
    return "".join(f"{value}{unit}" for value, unit in parts[first : first + 2])


def clock(stamp: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamp)) if stamp else ""


_COLOURS = (36, 33, 32, 35, 34, 31)


def prefix(process: str, width: int) -> str:
    """`[rank-3] ` before a line, coloured by rank on a terminal."""
    text = f"[{process}]".ljust(width + 2)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text + " "
    number = process.rpartition("-")[2]
    colour = _COLOURS[int(number) % len(_COLOURS)] if number.isascii() and number.isdigit() else 37
    return f"\x1b[{colour}m{text}\x1b[0m "
