"""What a node's processes report about themselves: the one folder of the run that they may write.

Meter files and results of scripts arrive there while the job runs. At the end
the agent takes them into the node's folder, regular files only, and never in
place of something that the agent itself wrote: a job cannot write its own record.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

FOLDER = "reports"
_OWN = (".log", ".lock")
_OWN_NAMES = re.compile(r"(metrics|power|chain-.*)\.jsonl")
_MOST = 10_000
"""Files taken from one node: more than any launcher starts processes."""


class Reports:
    """The reports of one node."""

    def __init__(self, node: Path) -> None:
        self._node = node
        self.folder = node / FOLDER

    def open(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def take(self) -> Iterator[str]:
        """Move the reports into the node's folder; says of each that is left why."""
        try:
            entries = sorted(os.scandir(self.folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries[:_MOST]:
            target = self._node / entry.name
            if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                yield f"{FOLDER}/{entry.name} was not collected: it is not a regular file"
            elif target.suffix in _OWN or _OWN_NAMES.fullmatch(entry.name) or target.is_dir():
                yield f"{FOLDER}/{entry.name} was not collected: only Trainshed writes files of that name"
            else:
                # A later attempt's report replaces an earlier one's.
                Path(entry.path).replace(target)
        if len(entries) > _MOST:
            yield f"{len(entries) - _MOST} files were not collected from {FOLDER}/: more than {_MOST} are not reports"
        else:
            _remove_if_empty(self.folder)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
