"""A store that only a proxy can reach: the embedded one under a name that nothing resolves."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from storekit import MIB, contents, fill

from trainshed.store import Credentials, copy
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store, pytest.mark.real, pytest.mark.core]


class Gate:
    """An HTTP proxy for one host: requests in absolute form are passed on, connection by connection."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self._target = name.encode(), ("127.0.0.1", port)
        self.seen: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:word@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._attend, args=(client,), daemon=True).start()

    def _attend(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as store, client.makefile("rb") as asked:
            threading.Thread(target=self._back, args=(store, client), daemon=True).start()
            try:
                while head := asked.readline():
                    method, target, version = head.split(b" ")
                    assert target.startswith(b"http://" + self.name + b"/"), head
                    lines = [method + b" " + target[7 + len(self.name) :] + b" " + version]
                    while (line := asked.readline()) not in (b"\r\n", b""):
                        (self.seen if line.lower().startswith(b"proxy-") else lines).append(line)
                    length = next(
                        int(x.split(b":")[1]) for x in lines if x.lower().startswith(b"content-length")
                    )
                    store.sendall(b"".join((*lines, b"\r\n")) + asked.read(length))
            except OSError:
                return

    @staticmethod
    def _back(store: socket.socket, client: socket.socket) -> None:
        try:
            while piece := store.recv(1 << 16):
                client.sendall(piece)
        except OSError:
            return


@pytest.fixture
def gate(store: Credentials, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    port = int(store.endpoint.rpartition(":")[2])
    opened = Gate(f"store.example:{port}", port)
    monkeypatch.setenv("http_proxy", opened.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield opened
    opened.close()


def test_a_tree_goes_through_a_proxy_and_back(
    gate: Gate, store: Credentials, bucket: str, tmp_path: Path
) -> None:
    fill(tmp_path / "a/large", 9 * MIB)
    fill(tmp_path / "a/sub/small", 100)
    far = make(store.access_key, store.secret_key, f"http://{gate.name.decode()}", path_style=True)
    copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=far)
    copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=far)
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    assert set(gate.seen) == {b"proxy-authorization: Basic dXNlcjp3b3Jk\r\n"}


def test_the_store_on_this_machine_is_reached_without_it(gate: Gate, store: Credentials, bucket: str) -> None:
    copy(__file__, f"s3://{bucket}/x", credentials=store)
    assert gate.seen == []
