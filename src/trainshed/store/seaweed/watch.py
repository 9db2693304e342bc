"""The embedded store's watcher: runs SeaweedFS as its child, starts it again if it dies, ends with it.

Started by `trainshed.store.seaweed.embedded` as `python -m trainshed.store.seaweed.watch FOLDER WEED`. Loopback only,
telemetry off, memory bounded, volumes sized for this disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from trainshed.files import hold
from trainshed.payload.modelarts.trainshed_store.credentials import make
from trainshed.store.seaweed import identities, security
from trainshed.store.seaweed.embedded import answers

PARTS = ("master", "volume", "filer", "s3")
MEMORY_MIB = 768
READY_SECONDS = 50.0
STOP_SECONDS = 2.0
MOST_RESTARTS, WINDOW = 10, 60.0
LOG_LIMIT, LOG_SECONDS = 32 << 20, 60.0
_PR_SET_PDEATHSIG = 1


class Watcher:
    def __init__(self, root: Path, weed: str) -> None:
        self.root, self.weed = root, weed
        self.ports: dict[str, int] = {}
        self.child: subprocess.Popen[bytes] | None = None
        self.stopping = False
        self.restarts = 0

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, LOG_SECONDS)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        (self.root / "failed").unlink(missing_ok=True)
        deaths: list[float] = []
        while not self.stopping:
            self._start()
            if not self._wait_ready():
                if not self.stopping:
                    self._fail("it does not answer; the end of its log says why")
                break
            self._tell(ready=True)
            if self.stopping:
                break
            if self.child:
                self.child.wait()
            if self.stopping:
                break
            now = time.monotonic()
            deaths = [t for t in deaths if now - t < WINDOW] + [now]
            if len(deaths) > MOST_RESTARTS:
                self._fail(f"it died {len(deaths)} times within {WINDOW:.0f} s")
                break
            self.restarts += 1
            self._tell(ready=False)
        self._end_child()
        (self.root / "state.json").unlink(missing_ok=True)
        return 0 if self.stopping else 1

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True
        if self.child and self.child.poll() is None:
            self.child.terminate()
            signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        """Now and then the log is kept short. While stopping: patience has ended.

        SeaweedFS takes long to exit after its ports are closed; what it acknowledged is in files already.
        """
        if not self.stopping:
            trim(self.root / "weed.log")
            signal.setitimer(signal.ITIMER_REAL, LOG_SECONDS)
        elif self.child and self.child.poll() is None:
            self.child.kill()

    def _start(self) -> None:
        self.ports = choose_ports(self._last_ports())
        (self.root / "data").mkdir(mode=0o700, exist_ok=True)
        log_path = self.root / "weed.log"
        trim(log_path)
        with open(log_path, "ab") as log:
            self.child = subprocess.Popen(
                command(self.weed, self.root, self.ports),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.root),
                cwd=self.root,
                preexec_fn=_die_with_parent,
            )
        self._tell(ready=False)

    def _wait_ready(self) -> bool:
        owner = identities.load(self.root).users[identities.OWNER]
        who = make(owner.access_key, owner.secret_key, f"http://127.0.0.1:{self.ports['s3']}")
        end = time.monotonic() + READY_SECONDS
        while not self.stopping and time.monotonic() < end:
            if self.child and self.child.poll() is not None:
                return False
            if _listens(self.ports["s3"]) and answers(who):
                return True
            time.sleep(0.05)
        return False

    def _end_child(self) -> None:
        if not self.child:
            return
        self.child.terminate()
        try:
            self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def _fail(self, reason: str) -> None:
        (self.root / "failed").write_text(reason)

    def _last_ports(self) -> dict[str, int]:
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.root / "ports.json").read_text()))
        return {}

    def _tell(self, *, ready: bool) -> None:
        (self.root / "ports.json").write_text(json.dumps(self.ports))
        state = {
            "pid": os.getpid(),
            "store_pid": self.child.pid if self.child else 0,
            "ports": self.ports,
            "ready": ready,
            "restarts": self.restarts,
        }
        temporary = self.root / ".state.json"
        temporary.write_text(json.dumps(state))
        temporary.replace(self.root / "state.json")


def trim(log: Path) -> None:
    """Keep one earlier piece of the log; its writer appends, so cutting it to nothing is safe."""
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        shutil.copyfile(log, log.with_suffix(".log.1"))
        os.truncate(log, 0)


def command(weed: str, root: Path, ports: dict[str, int]) -> list[str]:
    """SeaweedFS with all its parts in one process, on loopback."""
    size = volume_megabytes(shutil.disk_usage(root).free)
    sockets = str(root) if len(str(root)) < 80 else "/tmp"  # noqa: S108 - a socket's path has 107 bytes at most
    tag = ports["s3"]
    return [
        weed,
        "-logtostderr=true",
        "-v=-1",
        "server",
        f"-dir={root / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-disableHttp",  # of master and filer; nobody needs it
        "-master.telemetry=false",
        f"-master.volumeSizeLimitMB={size}",
        # One master leads at once. With an election volumes may ask it too early, and come back only after 5 s,
        # for which the first copy into a new store had to wait.
        "-master.peers=none",
        "-volume.max=0",
        "-volume.minFreeSpace=256MiB",
        "-volume.preStopSeconds=0",
        "-volume.concurrentUploadLimitMB=256",
        "-filer",
        f"-filer.localSocket={sockets}/filer-{tag}.sock",
        "-filer.disableDirListing",
        "-s3",
        f"-s3.config={root / 's3.json'}",
        "-s3.iam=false",
        "-s3.allowDeleteBucketNotEmpty=false",  # as OBS and S3 do
        f"-s3.localSocket={sockets}/s3-{tag}.sock",
        "-s3.concurrentUploadLimitMB=256",
        "-s3.domainName=localhost",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        *(f"-{part}.port={ports[part]}" for part in PARTS),
        *(f"-{part}.port.grpc={ports[part] + 10000}" for part in PARTS),
    ]


def volume_megabytes(free: int) -> int:
    """Small enough for hundreds of volumes on this disk, since a bucket takes at least two."""
    return max(32, min(1024, (free >> 20) // 512))


def environment(root: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(root),  # a person's own SeaweedFS settings are not the store's
        "GOMEMLIMIT": f"{MEMORY_MIB}MiB",
        # Two volumes of a bucket take turns: with one, writers stand still when it is full until the next is there.
        "WEED_MASTER_VOLUME_GROWTH_COPY_1": "2",
        **security.ensure(root),
    }


def choose_ports(last: dict[str, int]) -> dict[str, int]:
    """The ports of the last run if they are free, else new ones; each needs its port + 10000 as well."""
    if set(last) == set(PARTS) and all(map(_usable, last.values())):
        return last
    chosen: list[int] = []
    for _ in range(2000):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = 20000 + probe.getsockname()[1] % 10000
        if port not in chosen and _usable(port):
            chosen.append(port)
        if len(chosen) == len(PARTS):
            return dict(zip(PARTS, chosen, strict=True))
    raise SystemExit("no free ports")


def _usable(port: int) -> bool:
    """Whether a part can have this port, its gRPC port, and the socket that SeaweedFS makes for that in /tmp."""
    grpc = port + 10000
    sockets = Path("/tmp").glob(f"seaweedfs-*-grpc-{grpc}.sock")  # noqa: S108
    return _free(port) and _free(grpc) and all(path.lstat().st_uid == os.geteuid() for path in sockets)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    root, weed = Path(sys.argv[1]), sys.argv[2]
    os.umask(0o077)
    if hold(root / "watch.lock") is None:  # held until this process ends
        return 0  # another watcher is at work
    return Watcher(root, weed).run()


if __name__ == "__main__":
    sys.exit(main())
