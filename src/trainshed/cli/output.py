"""How commands show things: plain text for programs, tables and colours only on a terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any


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
    """One line of text that comes from others (a job, a store, a file): nothing in it may steer the terminal."""
    if text.isprintable():
        return text
    from unicodedata import category

    # The narrow spaces within our own numbers are harmless, though Python would not print them.
    return "".join(c if c.isprintable() or category(c) == "Zs" else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines elsewhere."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        print("\t".join(columns))
        for row in rows:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for index, name in enumerate(columns):
        # What names a thing is typed again, so it is shown whole; the last column gives way first.
        table.add_column(name, no_wrap=index == 0, overflow="fold", min_width=len(name))
    for row in rows:
        table.add_row(*map(Text, row))  # a plain text would be read as markup
    Console().print(table)


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
