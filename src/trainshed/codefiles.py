"""Which files of a local code folder go to the nodes: all but what is not needed there.

`.trainshedignore` in the folder adds patterns, one per line, in the manner of
.gitignore: `#` begins a comment, a final `/` means folders only, a pattern with
another `/` is relative to the code folder, and `!` keeps what an earlier pattern
leaves out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

IGNORE_FILE = ".trainshedignore"
DEFAULTS = (
    ".git/", ".hg/", ".svn/", ".venv/", "__pycache__/", ".mypy_cache/", ".ruff_cache/", ".pytest_cache/",
    ".ipynb_checkpoints/", ".tox/", "node_modules/", "*.pyc", ".DS_Store",
)  # fmt: skip


@dataclass(frozen=True)
class CodeFiles:
    """Relative names of the files to take, and of folders that are empty."""

    names: tuple[str, ...]
    empty: tuple[str, ...]
    complete: bool
    """Whether nothing is left out."""


def code_files(folder: Path, left_out: Sequence[str] = ()) -> CodeFiles:
    """What to take of a code folder; `left_out` are folders in it that reach the nodes in another way."""
    patterns = [*DEFAULTS, *(f"/{name}" for name in left_out), *_patterns(folder / IGNORE_FILE)]
    names: list[str] = []
    empty: list[str] = []
    complete = True
    pending: list[tuple[str, tuple[str, ...]]] = [("", (os.path.realpath(folder),))]
    while pending:
        prefix, above = pending.pop()
        with os.scandir(folder / prefix) as found:
            items = sorted(found, key=lambda item: item.name)
        kept = 0
        for item in items:
            name, is_folder = prefix + item.name, item.is_dir()
            virtual = is_folder and (Path(item.path) / "pyvenv.cfg").exists()
            if _is_ignored(name, is_folder, patterns, virtual):
                complete = False
                continue
            kept += 1
            real = os.path.realpath(item.path)
            if is_folder and real not in above:
                pending.append((f"{name}/", (*above, real)))
            else:
                names.append(name)
        if prefix and not kept:
            empty.append(prefix.rstrip("/"))
    return CodeFiles(tuple(names), tuple(empty), complete)


def _patterns(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _is_ignored(name: str, is_folder: bool, patterns: Sequence[str], ignored: bool) -> bool:
    """The last pattern that matches decides."""
    for pattern in patterns:
        keep, text = pattern.startswith("!"), pattern.removeprefix("!")
        if text.endswith("/") and not is_folder:
            continue
        text = text.rstrip("/")
        subject = name if "/" in text else name.rpartition("/")[2]
        if fnmatchcase(subject, text.lstrip("/")):
            ignored = not keep
    return ignored
