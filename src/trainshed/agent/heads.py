"""What an agent reports of its node's evidence while it grows: the running hashes of the files.

A thread reads only what was appended since the last time, so that neither the
ranks nor the agent's own loop wait for it. The agent sends what has changed to
the coordinator, which chains it (`trainshed.runs.chain`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from trainshed.agent.reports import FOLDER
from trainshed.agent.wire import Message
from trainshed.runs.chain import MOST_BYTES, PERIOD, GrowingFile, Head
from trainshed.runs.directory import RunDirectory

_REPORT = re.compile(r"meter-rank-\d{1,9}\.jsonl\Z")
_LOG = re.compile(r"rank-[\w-]{1,60}\.log\Z")
_SETTLED = ("job.yaml", "plan.json", "events/submit.jsonl", "events/driver-1.jsonl")
"""Written before the ranks start; node 0 sees to them."""
_MOST_FILES = 2000
_MOST_BYTES = 1 << 30
"""Of all reports of a node together, and of all its logs: a job may lay there files without end, which cost it nothing."""
_IN_MESSAGE = 1000
"""Heads in one message, so that it stays far below the longest line."""


class HeadKeeper(threading.Thread):
    """The heads of one node's files."""

    def __init__(self, run: RunDirectory, node: int, attempt: int, period: float = PERIOD) -> None:
        super().__init__(name="heads", daemon=True)
        self._run, self._node, self._attempt, self._period = run, node, attempt, period
        self._files: dict[str, GrowingFile] = {}
        self._left = {_REPORT: _MOST_BYTES, _LOG: _MOST_BYTES}
        self._changed: dict[str, Head] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._period):
            self.look()

    def finish(self) -> None:
        """Read everything to its end, once nothing writes any more."""
        self._over.set()
        if self.is_alive():
            self.join()
        self.look()

    def look(self) -> None:
        """Read on in every file."""
        for name, path, kind in self._found():
            file = self._files.setdefault(name, GrowingFile())
            before, most = file.length, self._left[kind] if kind else MOST_BYTES
            head = file.read_on(path, most)
            if kind:
                self._left[kind] -= file.length - before
            if head is not None:
                with self._lock:
                    self._changed[name] = head

    def messages(self) -> list[Message]:
        """What has changed since the last call, as messages for the coordinator."""
        if not self._changed:
            return []
        with self._lock:
            changed, self._changed = sorted(self._changed.items()), {}
        return [
            {"type": "heads", "heads": {n: [h.length, h.sha256] for n, h in changed[at : at + _IN_MESSAGE]}}
            for at in range(0, len(changed), _IN_MESSAGE)
        ]

    def _found(self) -> Iterator[tuple[str, Path, re.Pattern[str] | None]]:
        """Name, path, and of what the job writes its kind."""
        root, folder = self._run.path, self._run.node(self._node)
        mine = [f"events/node-{self._node}-{self._attempt}.jsonl"]
        mine += [f"node-{self._node}/{name}" for name in ("metrics.jsonl", "power.jsonl")]
        for name in [*(_SETTLED if self._node == 0 else ()), *mine]:
            yield name, root / name, None
        # At the end reports are taken from the one folder into the other, as they are.
        for source, pattern in ((folder / FOLDER, _REPORT), (folder, _REPORT), (folder, _LOG)):
            for path in _matching(source, pattern):
                yield f"node-{self._node}/{path.name}", path, pattern


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return list(islice((path for path in folder.iterdir() if pattern.match(path.name)), _MOST_FILES))
    except OSError:
        return []


def heads_of(message: Message) -> dict[str, Head]:
    """The heads that a node sent."""
    return {str(name): Head(int(length), str(digest)) for name, (length, digest) in message["heads"].items()}
