"""A server that is not an object store, or a broken one: one clear error, never a traceback, never a hang."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from storekit import QUICK

from trainshed.errors import TrainshedError
from trainshed.store import copy
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store]

_ITEM = "<Contents><Key>a</Key><Size>{}</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
ANSWERS = {
    "a length in words": b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "a chunk without a size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 80_000,
    "a size in words": b"HTTP/1.1 200 OK\r\n\r\n" + _ITEM.format("many").encode(),
    "a web page": b"HTTP/1.1 200 OK\r\n\r\n<html>Welcome to the hotel's network</html>",
}


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                client.recv(1 << 16)
                client.sendall(ANSWERS[request.param])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@pytest.mark.parametrize("endpoint", ANSWERS, indirect=True)
def test_what_is_no_answer_of_a_store_is_said_to_be_none(endpoint: str, tmp_path: Path) -> None:
    who = make("k", "s", endpoint)
    with pytest.raises(TrainshedError) as caught:
        copy("s3://bucket/t/", str(tmp_path / "down"), credentials=who, patience=QUICK)
    assert "bucket" in caught.value.message and caught.value.hint
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(9 << 20)
    with pytest.raises(TrainshedError) as caught:
        copy(str(large), "s3://bucket/large", credentials=who, patience=QUICK)
    assert "bucket" in caught.value.message and caught.value.hint
