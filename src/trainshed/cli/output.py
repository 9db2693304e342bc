"""How commands show things: plain text for programs, tables and colours only on a terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

_LAID_OUT = 200
"""Rows of a table that are fitted to the terminal; those after them have the columns of these."""


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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines elsewhere; rows are printed as they come, however many."""
    if not sys.stdout.isatty():
        print("\t".join(columns))
        for row in rows:
            print("\t".join(row))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for index, name in enumerate(columns):
        # Names are typed again, so they are shown in full; the last column is cut first.
        table.add_column(name, no_wrap=index == 0, overflow="fold", min_width=len(name))
    rest = iter(rows)
    first = list(islice(rest, _LAID_OUT))
    for row in first:
        table.add_row(*row)
    Console().print(table)
    widths = [max(map(cell_len, column)) for column in zip(columns, *first, strict=True)]
    for row in rest:
        cells = (text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True))
        print(f" {'  '.join(cells)}".rstrip())


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
