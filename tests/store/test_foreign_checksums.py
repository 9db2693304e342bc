"""Stores that do not speak CRC-32: one ignores it, one refuses it, one keeps other bytes than it was sent."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from storekit import QUICK

from trainshed.payload.modelarts.trainshed_store.errors import ChecksumError
from trainshed.payload.modelarts.trainshed_store.s3.client import CRC32, S3Client
from trainshed.store import copy
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store]

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def store() -> Iterator[Callable[[Callable[[dict[str, str], bytes], Answer]], S3Client]]:
    servers = []

    def start(answer: Callable[[dict[str, str], bytes], Answer]) -> S3Client:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, text = answer({k.lower(): v for k, v in self.headers.items()}, body)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return S3Client(make("k", "s", f"http://127.0.0.1:{server.server_address[1]}"), QUICK)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _etag(body: bytes) -> dict[str, str]:
    return {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}


def test_a_store_that_ignores_crc32_is_held_to_its_etag(store) -> None:
    seen = []

    def answer(headers: dict[str, str], body: bytes) -> Answer:
        seen.append(headers)
        return 200, _etag(body), b""

    client = store(answer)
    for _ in range(2):
        client.put("bucket", "key", b"bytes")
    assert CRC32 in seen[0] and "content-md5" not in seen[0]
    assert CRC32 not in seen[1] and "content-md5" in seen[1]


def test_a_store_that_ignores_crc32_and_keeps_other_bytes_is_caught(store) -> None:
    with pytest.raises(ChecksumError):
        store(lambda headers, body: (200, _etag(b"other bytes"), b"")).put("bucket", "key", b"bytes")


def test_a_store_that_refuses_crc32_gets_md5(store) -> None:
    def answer(headers: dict[str, str], body: bytes) -> Answer:
        if CRC32 in headers:
            return 501, {}, b"<Error><Code>NotImplemented</Code><Message>no</Message></Error>"
        return 200, _etag(body), b""

    client = store(answer)
    assert client.put("bucket", "key", b"bytes") == hashlib.md5(b"bytes").hexdigest()


def test_a_store_that_says_it_keeps_another_crc32_is_caught(store) -> None:
    with pytest.raises(ChecksumError):
        store(lambda headers, body: (200, {CRC32: "AAAAAA=="}, b"")).put("bucket", "key", b"bytes")


def test_a_store_that_tells_no_checksum_at_all_is_sent_the_md5(store) -> None:
    seen = []

    def answer(headers: dict[str, str], body: bytes) -> Answer:
        seen.append("content-md5" in headers)
        return 200, {"ETag": '"no-checksum"'}, b""

    store(answer).put("bucket", "key", b"bytes")
    assert seen == [False, True]


class Encrypted(http.server.BaseHTTPRequestHandler):
    """One object under its own key: its ETag looks like an MD5 but is not."""

    protocol_version = "HTTP/1.1"
    data = bytes(range(256)) * (40 << 10)

    def do_HEAD(self) -> None:
        self._answer(200, self.data)

    def do_GET(self) -> None:
        start, end = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
        part = self.data[start : end + 1]
        self._answer(206, part)
        self.wfile.write(part)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{"0" * 32}"')
        self.send_header("x-amz-server-side-encryption", "aws:kms")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_large_object_under_a_key_of_its_own_is_fetched_and_said_to_be_unverified(tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Encrypted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        who = make("k", "s", f"http://127.0.0.1:{server.server_address[1]}")
        summary = copy("s3://bucket/large", str(tmp_path / "large"), credentials=who, patience=QUICK)
    finally:
        server.shutdown()
        server.server_close()
    assert (tmp_path / "large").read_bytes() == Encrypted.data
    assert summary.complete and summary.unverified == ("large",)
