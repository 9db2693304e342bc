"""Run directories in an object store, for clusters whose nodes share no file system.

Every writer has a folder of its own and carries it to `<runs>/<run id>/` while it works: the driver the run's
own files, each node its `node-<i>` and outputs. Whoever reads, fetches. What is asked of a run (a stop, a later
attempt's claim) lies in `asks/`; code and inputs of the submitting machine in `staged/`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainshed import store
from trainshed.engines.slurm import handed, script
from trainshed.errors import RefusedError, TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.spec.job import Channel, JobSpec

HANDED = "TRAINSHED_HANDED"
"""The variable in which Slurm brings the driver its secrets: there is no file that both sides see."""

_MARK = "carried.json"
_ASKS, _STAGED, _OUTPUTS = "asks/", "staged/", "outputs/"
_PERIOD = 2.0
_SHARE = 20
"""Carrying rests this many times as long as it took: logs that grow large are carried more seldom."""
_GROWING = 64 << 20
"""Larger files are carried only once nothing writes them any more."""
_FRESH = 2.0
_pulled: dict[Path, float] = {}


def is_carried(run: RunDirectory) -> bool:
    """Whether this folder is a reader's copy of a run that lies in a store."""
    return (run.path / _MARK).exists()


def begin(run: RunDirectory, url: str, job: JobSpec) -> JobSpec:
    """Put a job's local folders into the store; returns the job that takes them from there."""
    for output in job.outputs:
        if output.target and "://" not in output.target:
            raise RefusedError(
                f"outputs.{output.name}.target is {output.target!r}, a folder of this machine",
                "nodes share no file system: leave target out, or give a URL",
            )
    if job.log_url and "://" not in job.log_url:
        raise RefusedError(f"log_url is {job.log_url!r}, a folder of this machine", "give a URL")
    run.write(_MARK, json.dumps({"url": url, "known": {}}))
    changes: dict[str, object] = {
        "inputs": tuple(_staged(channel, f"{url}/{_STAGED}inputs") for channel in job.inputs)
    }
    if job.code and "://" not in job.code:
        changes["code"] = f"{url}/{_STAGED}code/"
        store.copy(f"{job.code}/", str(changes["code"]), empty_ok=True)
    return job.model_copy(update=changes)


def _staged(channel: Channel, url: str) -> Channel:
    if not channel.source or "://" in channel.source:
        return channel
    there = f"{url}/{channel.name}/"
    store.copy(channel.source, there)
    if not Path(channel.source).is_dir():
        there += Path(channel.source).name
    return channel.model_copy(update={"source": there})


def publish(run: RunDirectory) -> None:
    """Bring this side's files to the store: only while no driver lives that writes them."""
    for name in ("job.yaml", "result.json", "events.jsonl"):
        if (run.path / name).exists():
            store.write_bytes(f"{_url(run)}/{name}", (run.path / name).read_bytes())


def ask_to_stop(run: RunDirectory, reason: str) -> None:
    store.write_bytes(f"{_url(run)}/{_ASKS}stop", reason.encode())


def forget(run: RunDirectory) -> None:
    with contextlib.suppress(store.ObjectNotFoundError):
        store.remove(f"{_url(run)}/", recursive=True)


def pull(run: RunDirectory) -> None:
    """Fetch what was written since the last time; the events that tell of an end come last."""
    if time.monotonic() - _pulled.get(run.path, float("-inf")) < _FRESH:
        return
    mark = json.loads((run.path / _MARK).read_text())
    url, known, own = mark["url"], mark["known"], run.events_path
    # Read before the rest is listed: when they tell of the end, all that is listed then is final.
    told = store.read_bytes(f"{url}/{own.name}")
    there = {e.name: e.etag for e in store.list_tree(f"{url}/") if not e.is_directory}
    others = {n: etag for n, etag in there.items() if n != own.name and not n.startswith((_ASKS, _STAGED))}
    ended = _tells(Kind.FINISHED, told)
    wanted = {
        n for n, etag in others.items() if known.get(n) != etag and (ended or not n.startswith(_OUTPUTS))
    }
    if wanted:
        store.copy(f"{url}/", f"{run.path}/", only=wanted)
        run.write(_MARK, json.dumps({"url": url, "known": known | {n: others[n] for n in wanted}}))
    # Until a driver has taken the run over, this side's own events are the newer ones.
    if _tells(Kind.ATTEMPT, told) and told != own.read_bytes():
        run.write(own.name, told.decode())
    _pulled[run.path] = time.monotonic()


def _tells(kind: Kind, told: bytes) -> bool:
    return f'"kind": "{kind}"'.encode() in told


class Carrier:
    """Brings what one writer writes to the store, from a thread, and hears what is asked of the run."""

    def __init__(self, run: RunDirectory, url: str, access: store.Credentials, node: int | None) -> None:
        self.run, self.url = run, url
        self._access, self._node = access, node
        self._sent: dict[Path, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._attempt = 0
        self.is_superseded = False
        """Whether a later start of the same job has taken the run over."""
        self._thread = threading.Thread(target=self._repeat, name="carrier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def claim(self, attempt: int) -> None:
        """From now on this attempt is the run's."""
        self._attempt = attempt
        store.write_bytes(f"{self.url}/{_ASKS}attempt-{attempt}", b"", credentials=self._access)

    def hear(self) -> None:
        """Take over what was asked of the run meanwhile."""
        if self._node is not None:
            return
        with contextlib.suppress(store.ObjectNotFoundError):
            for entry in store.list_tree(f"{self.url}/{_ASKS}", credentials=self._access):
                _, _, number = entry.name.partition("attempt-")
                self.is_superseded |= bool(self._attempt) and number.isdigit() and int(number) > self._attempt
                if entry.name == "stop" and not any(e.kind is Kind.STOP_REQUESTED for e in self.run.events()):
                    reason = store.read_bytes(f"{self.url}/{_ASKS}stop", credentials=self._access).decode()
                    self.run.append(Kind.STOP_REQUESTED, reason=reason)

    def push(self, *, settled: bool = False) -> None:
        """Carry what has changed; the run's own events last. `settled`: nothing writes any more."""
        with self._lock:
            for path in self._files():
                if self.is_superseded:
                    return
                self._carry(path, settled)

    def read(self, name: str) -> bytes:
        return store.read_bytes(f"{self.url}/{name}", credentials=self._access)

    def fetch(self, wanted: Callable[[str], bool]) -> None:
        """Bring files of the run here, by their names; they are not carried back unless somebody changes them."""
        with self._lock:
            there = store.list_tree(f"{self.url}/", credentials=self._access)
            names = [e.name for e in there if not e.is_directory and wanted(e.name)]
            if names:
                store.copy(f"{self.url}/", f"{self.run.path}/", only=names, credentials=self._access)
            for path in map(self.run.path.joinpath, names):
                self._sent[path] = _stamp(path)

    def finish(self) -> None:
        """The last word; raises when the store does not take it."""
        self._over.set()
        self._thread.join(60.0)
        self.push(settled=True)

    def _carry(self, path: Path, settled: bool) -> None:
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
            return  # renamed since it was listed: the next time tells
        self._sent[path] = stamp

    def _files(self) -> Iterator[Path]:
        """The files of this writer. A node's are its own folder and outputs; the driver's are all of its folder."""
        roots = [self.run.path]
        if self._node is not None:
            roots = [self.run.node(self._node), self.run.path / "outputs"]
        found = [
            p
            for root in roots
            for p in root.rglob("*")
            if p.is_file() and not p.name.startswith(".") and p.suffix != ".lock"
        ]
        return iter(sorted(found, key=lambda p: (p == self.run.events_path, str(p))))

    def _repeat(self) -> None:
        rest = _PERIOD
        while not self._over.wait(rest):
            began = time.monotonic()
            try:
                self.hear()
                self.push()
            except (TrainshedError, OSError) as error:
                # The last push is the one that counts, and says so if it fails.
                print(f"carrying the run to {self.url}: {error}", file=sys.stderr, flush=True)
            rest = max(_PERIOD, _SHARE * (time.monotonic() - began))


def hand(secrets: Mapping[str, str], url: str) -> dict[str, str]:
    """The variables that Slurm brings the driver."""
    access = store.resolve(url.partition(":")[0]).environment()
    return {HANDED: json.dumps({"secrets": dict(secrets), "store": access})}


def access_of(url: str, variables: Mapping[str, str]) -> store.Credentials:
    return store.resolve(url.partition(":")[0], environ=variables)


def hosted(run: RunDirectory, node: int | str) -> RunDirectory:
    """Where a node has its part of the run, given the driver's: which is node 0's too, since it coordinates."""
    return RunDirectory(run.path.parent.with_name(f"carried-{node}") / run.id)


def own_folder(path: Path) -> Path:
    """A folder on this node's own disk that nobody else can have put there."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.stat().st_uid != os.getuid():
        raise TrainshedError(
            f"{path} belongs to somebody else", "ask its owner, or set the profile's scratch"
        )
    return path


def _url(run: RunDirectory) -> str:
    return str(json.loads((run.path / _MARK).read_text())["url"])


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _arrive(carrier: Carrier, log: Path) -> None:
    """The driver's part of the run, on this node's disk: from the store, unless an earlier start left a newer one."""
    run = carrier.run
    with contextlib.suppress(FileNotFoundError):
        left = run.events_path.read_bytes()
        if not left.startswith(carrier.read(run.events_path.name)):
            shutil.rmtree(run.path)
    if not run.events_path.exists():
        own_folder(run.path)
        carrier.fetch(lambda name: "/" not in name or name.startswith("node-0/"))
    earlier = sum(event.kind is Kind.ATTEMPT for event in run.events())
    with contextlib.suppress(OSError):
        if earlier:
            (run.path / "slurm.log").rename(run.path / f"slurm.attempt-{earlier}.log")
        os.link(log, run.path / "slurm.log")


def main() -> int:
    """What the batch script becomes: fetch the run, drive it, carry it, leave nothing behind."""
    from trainshed.engines.slurm import driver

    runs, run = sys.argv[1], RunDirectory(Path(sys.argv[2]))
    log = script.carried_log(str(run.path))
    given = json.loads(os.environ.pop(HANDED))
    own_folder(run.path.parent.parent)
    carrier = Carrier(run, f"{runs}/{run.id}", access_of(runs, given["store"]), None)
    _arrive(carrier, log)
    handed.keep(run, given["secrets"])
    carrier.start()
    try:
        code = driver.drive(run, carrier, given["store"])
        carrier.finish()
    except (TrainshedError, OSError) as error:
        print(f"the end of the run was not carried to {carrier.url}: {error}", file=sys.stderr)
        print(f"it lies in {run.path}", file=sys.stderr)
        return 1
    finally:
        handed.forget(run)
    shutil.rmtree(run.path, ignore_errors=True)
    log.unlink(missing_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
