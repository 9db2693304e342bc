"""The log a platform promises: the node's processes joined in one file, left at the job's log_url.

It is uploaded from time to time and at the end. The run directory keeps every
process' own log, so a log_url that cannot be reached costs nothing but this copy.
"""

from __future__ import annotations

import threading
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.agent import staging
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, Transfer
from trainshed.runs.directory import RunDirectory
from trainshed.runs.logs import LogReader, log_files

_LAST_WAIT = 60.0


class JoinedLog:
    """One node's. Lines of a node with several processes begin with the name of theirs."""

    def __init__(self, run: RunDirectory, node: NodePlan, wanted: Transfer, access: StoreAccess) -> None:
        self._store = access
        self._run, self._index, self._wanted = run, node.index, wanted
        self._several = sum(not process.helper for process in node.processes) > 1
        self._path = run.node(node.index) / "joined" / wanted.name
        self._readers: dict[Path, LogReader] = {}
        self._sent = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="joined log", daemon=True)

    def start(self) -> None:
        staging.check_target(self._wanted, self._store)
        self._path.parent.mkdir(exist_ok=True)
        self._path.touch()
        self._thread.start()

    def finish(self) -> str:
        """The whole log, uploaded; what went wrong, if anything did."""
        if not self._thread.is_alive():
            return ""
        self._over.set()
        self._thread.join(_LAST_WAIT)
        try:
            self._gather(final=True)
            self._upload()
        except (OSError, TrainshedError) as error:
            return f"cannot save the log {self._wanted.name}: {error}"
        return ""

    def _repeat(self) -> None:
        while not self._over.wait(self._wanted.every):
            try:
                self._gather(final=False)
                self._upload()
            except (OSError, TrainshedError):
                # The upload at the end is the one that counts, and says so if it fails.
                continue

    def _gather(self, final: bool) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            for index, path in log_files(self._run, node=self._index):
                reader = self._readers.setdefault(path, LogReader(index, path))
                for line in reader.lines(final):
                    stream.write(f"[{line.process}] {line.text}\n" if self._several else f"{line.text}\n")

    def _upload(self) -> None:
        size = self._path.stat().st_size
        if size != self._sent:
            transfer = Transfer("log", str(self._path), self._wanted.target)
            staging.save(transfer, self._path.parent, self._store)
            self._sent = size
