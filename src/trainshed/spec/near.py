"""Suggestions for a mistyped name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

_MOST_NAMES = 2000
"""Files of a folder among which a similar name is looked for."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or nothing."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def near_file(folder: Path, name: str) -> str:
    """`; did you mean X?` for a file of the folder with nearly this name, or with it in a folder below."""
    wanted = Path(name).name
    found = [
        path.relative_to(folder)
        for pattern in ("*", "*/*")
        for path in folder.glob(pattern)
        if path.is_file()
    ]
    same = [str(path) for path in found if path.name == wanted]
    near = f"did you mean {same[0]}?" if same else did_you_mean(name, [str(path) for path in found])
    return f"; {near}" if near else ""


def near_path(path: Path) -> str:
    """`; did you mean X?` for a path that is not there, where its folder has one with nearly the same name."""
    try:
        names = [entry.name for entry, _ in zip(path.parent.iterdir(), range(_MOST_NAMES), strict=False)]
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"; did you mean {path.parent / near[0]}?" if near else ""
