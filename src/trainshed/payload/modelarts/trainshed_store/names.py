"""Names seen in a source, and what they would do to one another in a file system."""

from __future__ import annotations

import os
from pathlib import Path

from .tree import Entry


def above(name: str) -> list[str]:
    """The folders that a file is in, outermost first."""
    return [name[:i] for i, c in enumerate(name) if c == "/"]


class Names:
    """Names seen in the source, and what they would do to one another in a file system."""

    def __init__(self, root: str) -> None:
        self.files: set[str] = set()
        self.directories: set[str] = set()
        self.unknown: set[str] = set()
        self._root = root
        self._folded: dict[str, str] = {}
        self._folds: bool | None = None

    def __bool__(self) -> bool:
        return bool(self.files or self.directories or self.unknown)

    def is_unknown(self, name: str) -> bool:
        """Whether the source may have this: it, or a folder above it, could not be looked at."""
        return "." in self.unknown or name in self.unknown or any(up in self.unknown for up in above(name))

    def add(self, item: Entry) -> None:
        (self.directories if item.is_directory else self.files).add(item.name)
        parent = item.name.rpartition("/")[0]
        while parent and parent not in self.directories:
            self.directories.add(parent)
            parent = parent.rpartition("/")[0]

    def clash(self, item: Entry) -> str:
        """Why this name and an earlier one cannot both be files here; empty if they can."""
        if not item.is_directory and item.name in self.directories:
            return "is also a directory of other objects"
        parent = item.name.rpartition("/")[0]
        while parent:
            if parent in self.files:
                return f"is below '{parent}', which is also an object"
            parent = parent.rpartition("/")[0]
        other = self._folded.setdefault(item.name.casefold(), item.name)
        if other != item.name and self._case_is_folded():
            return f"differs from '{other}' only in case, which this file system does not keep apart"
        return ""

    def _case_is_folded(self) -> bool:
        if self._folds is None:
            probe = Path(self._root) / f".trainshed-Case-{os.urandom(8).hex()}.part"
            probe.touch()
            self._folds = probe.with_name(probe.name.lower()).exists()
            probe.unlink()
        return self._folds
