"""Run directories in an object store, for clusters whose nodes share no file system.

Every writer has its own files and uploads them to `<runs>/<run id>/` while it
works: the driver the run's, each node its `node-<i>`, events and outputs. Readers
fetch them. Code and inputs of the submitting machine are in `staged/`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainshed import store
from trainshed.codefiles import code_files
from trainshed.errors import NotFoundError, RefusedError, TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.locations import RunLocation, make_mirror
from trainshed.spec.job import Channel, JobSpec

_KNOWN = ".pulled.json"
"""The version of each object that the mirror has."""
_END = "events/end.jsonl"
_STAGED, _OUTPUTS = "staged/", "outputs/"
_PERIOD = 2.0
_SHARE = 20
"""The pause after an upload, as a multiple of its duration: large logs are uploaded less often."""
_GROWING = 64 << 20
"""Larger files are uploaded only once nothing writes them any more."""
_DRIVER = re.compile(r"driver-(\d+)\.jsonl$")
_log = logging.getLogger(__name__)


def begin(run: RunDirectory, url: str, job: JobSpec, keys: store.Credentials | None) -> JobSpec:
    """Put a job's local folders into the store; returns the job that takes them from there."""
    for output in job.outputs:
        if output.target and "://" not in output.target:
            raise RefusedError(
                f"outputs.{output.name}.target is {output.target!r}, a folder of this machine",
                "nodes share no file system: leave target out, or give a URL",
            )
    if job.log_url and "://" not in job.log_url:
        raise RefusedError(f"log_url is {job.log_url!r}, a folder of this machine", "give a URL")
    make_mirror(run, RunLocation(url=url))
    changes: dict[str, object] = {
        "inputs": tuple(_staged(channel, f"{url}/{_STAGED}inputs", keys) for channel in job.inputs)
    }
    if job.code and "://" not in job.code:
        changes["code"] = f"{url}/{_STAGED}code/"
        names = code_files(Path(job.code), job.inputs_in_code).names
        target = str(changes["code"])
        store.copy(f"{job.code}/", target, empty_ok=True, credentials=keys, only=names)
    return job.model_copy(update=changes)


def _staged(channel: Channel, url: str, keys: store.Credentials | None) -> Channel:
    if not channel.source or "://" in channel.source:
        return channel
    target = f"{url}/{channel.name}/"
    store.copy(channel.source, target, credentials=keys)
    if not Path(channel.source).is_dir():
        target += Path(channel.source).name
    return channel.model_copy(update={"source": target})


def publish_submission(run: RunDirectory, url: str, keys: store.Credentials | None) -> None:
    """Upload the request itself, for the driver."""
    for name in ("job.yaml", "events/submit.jsonl"):
        store.write_bytes(f"{url}/{name}", (run.path / name).read_bytes(), credentials=keys)


def pull(run: RunDirectory, url: str, keys: store.Credentials | None) -> None:
    """Fetch what was written since the last time; the end comes last. NotFoundError: the run is gone there."""
    known = _known(run)
    # Asked before the rest is listed: when there is an end, all that is listed then is final.
    ended = store.exists(f"{url}/{_END}", credentials=keys)
    remote = {e.name: e.etag for e in store.list_tree(f"{url}/", credentials=keys) if not e.is_directory}
    if "events/submit.jsonl" not in remote:
        raise NotFoundError(f"there is no run at {url}", "it was removed there")
    wanted = {
        name
        for name, etag in remote.items()
        if known.get(name) != etag and name != _END and not name.startswith(_STAGED)
        and (ended or not name.startswith(_OUTPUTS))
    }  # fmt: skip
    if wanted:
        store.copy(f"{url}/", f"{run.path}/", only=wanted, source_credentials=keys)
        run.write(_KNOWN, json.dumps(known | {name: remote[name] for name in wanted}))
    if ended and not (run.path / _END).exists():
        run.write(_END, store.read_bytes(f"{url}/{_END}", credentials=keys).decode())


def _known(run: RunDirectory) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads((run.path / _KNOWN).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: etag for name, etag in found.items() if (run.path / name).is_file()}


class StoreSync:
    """Uploads what one writer writes, from a thread, and fetches requests to stop the run."""

    def __init__(self, run: RunDirectory, url: str, access: store.Credentials, node: int | None) -> None:
        self.run, self.url = run, url
        self._access, self._node = access, node
        self._sent: dict[Path, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._start: int | None = None
        self.is_superseded = False
        """Whether a later start of the same job has taken the run over."""
        self._thread = threading.Thread(target=self._repeat, name="store sync", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def claim(self, start: int) -> None:
        """From now on the run belongs to this start of its driver."""
        self._start = start
        self.push()

    def fetch_requests(self) -> None:
        """Fetch the stop requests made meanwhile."""
        if self._node is not None:
            return
        with contextlib.suppress(NotFoundError):
            for entry in store.list_tree(f"{self.url}/events/", credentials=self._access):
                if found := _DRIVER.match(entry.name):
                    self.is_superseded |= self._start is not None and int(found[1]) > self._start
                target = self.run.events_folder / entry.name
                if entry.name.startswith("stop-") and not target.exists():
                    data = store.read_bytes(f"{self.url}/events/{entry.name}", credentials=self._access)
                    self.run.write(f"events/{entry.name}", data.decode())
                    self._sent[target] = _stamp(target)

    def push(self, *, settled: bool = False) -> None:
        """Upload what has changed; the end last. `settled`: nothing writes any more."""
        with self._lock:
            for path in self._files():
                if self.is_superseded:
                    return
                self._upload(path, settled)

    def exists(self, name: str) -> bool:
        return store.exists(f"{self.url}/{name}", credentials=self._access)

    def fetch(self, wanted: Callable[[str], bool]) -> None:
        """Fetch files of the run by name; they are not uploaded again unless somebody changes them."""
        with self._lock:
            remote = store.list_tree(f"{self.url}/", credentials=self._access)
            names = [e.name for e in remote if not e.is_directory and wanted(e.name)]
            if names:
                store.copy(f"{self.url}/", f"{self.run.path}/", only=names, credentials=self._access)
            for path in map(self.run.path.joinpath, names):
                self._sent[path] = _stamp(path)

    def finish(self) -> None:
        """Upload everything a last time; raises when the store rejects it."""
        self._over.set()
        self._thread.join(60.0)
        self.push(settled=True)

    def _upload(self, path: Path, settled: bool) -> None:
        try:
            stamp = _stamp(path)
            if self._sent.get(path) == stamp or (stamp[0] > _GROWING and not settled):
                return
            target = f"{self.url}/{path.relative_to(self.run.path)}"
            if stamp[0] > _GROWING:
                store.copy(str(path), target, credentials=self._access, force=True)
            else:
                store.write_bytes(target, path.read_bytes(), credentials=self._access)
        except FileNotFoundError:
            return  # renamed since it was listed: the next listing has it
        self._sent[path] = stamp

    def _files(self) -> Iterator[Path]:
        """The files of this writer: a node's folder, events and outputs; the driver's are all of its folder."""
        if self._node is None:
            found = [p for p in self.run.path.rglob("*") if _is_synced(p)]
        else:
            roots = [self.run.node(self._node), self.run.path / "outputs"]
            found = [p for root in roots for p in root.rglob("*") if _is_synced(p)]
            found += self.run.events_folder.glob(f"node-{self._node}-*.jsonl")
        last = self.run.path / _END
        return iter(sorted(found, key=lambda p: (p == last, str(p))))

    def _repeat(self) -> None:
        rest = _PERIOD
        while not self._over.wait(rest):
            began = time.monotonic()
            try:
                self.fetch_requests()
                self.push()
            except (TrainshedError, OSError) as error:
                # The last push is the one that counts, and raises if it fails.
                _log.warning("cannot upload the run to %s: %s", self.url, error)
            rest = max(_PERIOD, _SHARE * (time.monotonic() - began))


def _is_synced(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.suffix != ".lock"


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
