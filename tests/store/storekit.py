"""What the store's tests share: a running embedded store, trees to copy, and a proxy that injects faults."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainshed.payload.modelarts.trainshed_store.s3.calls import Patience
from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.store import Credentials, copy
from trainshed.store.credentials import make
from trainshed.store.seaweed import embedded

MIB = 1 << 20
QUICK = Patience(attempts=4, first_pause=0.02, longest_pause=0.1, connect_timeout=2, idle_timeout=2)


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Endpoint]:
    """The embedded store as Trainshed starts it."""
    home = tmp_path_factory.mktemp("home")
    yield embedded.ensure_running(home)
    embedded.stop(home)


@pytest.fixture
def store(endpoint: embedded.Endpoint) -> Credentials:
    return endpoint.credentials


_numbers = iter(range(10**6))


@pytest.fixture
def bucket(store: Credentials) -> str:
    name = f"bucket-{os.getpid()}-{next(_numbers)}"
    client = S3Client(store)
    client.create_bucket(name)
    client.close()
    return name


@pytest.fixture
def client(store: Credentials) -> Iterator[S3Client]:
    made = S3Client(store)
    yield made
    made.close()


@pytest.fixture(scope="session")
def clients() -> Path:
    """The bin folder of the environment with the official clients: the extra `dev` has them."""
    return Path(sys.executable).parent


@pytest.fixture(scope="session")
def listing(endpoint: embedded.Endpoint, tmp_path_factory: pytest.TempPathFactory) -> int:
    """A bucket `listing` with 10,000 keys."""
    root = tmp_path_factory.mktemp("listing")
    for number in range(10_000):
        (root / f"k{number:05}").touch()
    return copy(str(root), "s3://listing/", credentials=endpoint.credentials).files


def fill(path: Path, size: int, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(f"{path.name}{seed}").randbytes(size))
    return path


def contents(root: Path) -> dict[str, str]:
    """Every file below a directory with its hash; directories without files as such."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file():
            found[name] = hashlib.md5(path.read_bytes()).hexdigest()
        elif path.is_dir() and not any(path.iterdir()):
            found[name + "/"] = ""
    return found


def until(condition: Callable[[], bool], seconds: float = 60, what: str = "condition") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true in {seconds} s"
        time.sleep(0.02)


class Proxy:
    """A TCP proxy before the store. `plan(n)` names the fault of the n-th connection, or is empty for none.

    Faults: refuse (reset at once), reset (after some bytes of the answer), 503, slow, truncate (close cleanly
    in the middle of a body), corrupt (flip a byte of the body on its way down), corrupt-up (on its way up).
    """

    def __init__(self, target: str, plan: Callable[[int], str]) -> None:
        host, _, port = target.rpartition("//")[2].partition(":")
        self._target = (host, int(port))
        self._plan = plan
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.injected: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                number = self.connections
                self.connections += 1
                threading.Thread(target=self._serve, args=(inner, number), daemon=True).start()

    def _serve(self, inner: socket.socket, number: int) -> None:
        fault = self._plan(number)
        if fault in ("refuse", "503", "slow"):
            self.injected.append(fault)
        if fault == "refuse":
            _reset(inner)
            return
        with contextlib.suppress(OSError):
            if fault == "503":
                inner.recv(1 << 16)
                body = b"<Error><Code>SlowDown</Code><Message>Please slow down</Message></Error>"
                head = f"HTTP/1.1 503 Slow Down\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                inner.sendall(head.encode() + body)
                inner.close()
                return
            outer = socket.create_connection(self._target)
            up = threading.Thread(target=self._pump, args=(inner, outer, fault, "up"), daemon=True)
            up.start()
            self._pump(outer, inner, fault, "down")

    def _pump(self, source: socket.socket, sink: socket.socket, fault: str, way: str) -> None:
        seen = 0
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                begins = data.startswith((b"HTTP/1.", b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE "))
                body = data.find(b"\r\n\r\n") + 4 if begins else 0
                if fault == "slow":
                    time.sleep(0.02)
                if (fault, way) in (("corrupt", "down"), ("corrupt-up", "up")) and len(data) > body + 10:
                    changed = bytearray(data)
                    changed[-5] ^= 0xFF
                    self.injected.append(fault)
                    data = bytes(changed)
                seen += len(data)
                if way == "down" and fault == "reset" and seen > 100:
                    self.injected.append(fault)
                    sink.sendall(data[: len(data) // 2])
                    _reset(sink)
                    break
                if way == "down" and fault == "truncate" and len(data) > body + 10:
                    self.injected.append(fault)
                    sink.sendall(data[:-7])
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            sock.shutdown(
                socket.SHUT_RD
            )  # wakes the other pump, whose hold on the socket would delay the reset
        sock.close()


@contextlib.contextmanager
def proxied(store: Credentials, plan: Callable[[int], str]) -> Iterator[tuple[Credentials, Proxy]]:
    proxy = Proxy(store.endpoint, plan)
    try:
        yield make(store.access_key, store.secret_key, proxy.url), proxy
    finally:
        proxy.close()
