"""Copies the growing logs of a job into log/ of the package: one file per server, with the platform's name."""

from __future__ import annotations

from pathlib import Path

from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.logs import LogReader, log_files


class LogSync:
    """Call `sync` from time to time and once at the end; lines of several processes begin with their name."""

    def __init__(self, run: RunDirectory, folder: Path) -> None:
        self._run, self._folder = run, folder
        self._readers: dict[Path, LogReader] = {}
        self._names: dict[int, str] = {}
        self._fresh: set[str] = set()

    def sync(self, final: bool = False) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for index, path in log_files(self._run):
            reader = self._readers.setdefault(path, LogReader(index, path))
            name = self._name(index)
            if not name:
                continue
            # A log is written again by the first sync, so that collecting again does not double it.
            mode = "a" if name in self._fresh else "w"
            self._fresh.add(name)
            with (self._folder / name).open(mode, encoding="utf-8") as stream:
                stream.writelines(f"[{line.process}] {line.text}\n" for line in reader.lines(final))

    def _name(self, node: int) -> str:
        """The name that the plan promises for the node's log."""
        if not self._names:
            try:
                nodes = self._run.plan_json()["nodes"]
            except TrainshedError:
                return ""
            self._names = {item["index"]: Path(item["log"]["name"]).name for item in nodes if item.get("log")}
        return self._names.get(node, "")
