"""A second door of the embedded store, for boto3 with signatures V2.

V2 signs a bucket's own requests as `/bucket` (OBS's clients do) or `/bucket/` (boto3 does), whatever is sent;
SeaweedFS takes only what was sent. Here such a request is tried as it came and, if it is refused, once more with
the slash. Everything else passes through unread, and the store alone decides who may enter. Clients that sign as
they send use the store's own door, which is faster.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

MOST = 64
"""Connections at once; further ones wait to be accepted."""
IDLE_SECONDS = 60.0
PAUSE = 0.1
LONGEST_HEAD = 1 << 16
LONGEST_KEPT = 4 << 20
"""A body that may have to be sent twice is kept; a bucket's own requests are shorter."""
_PIECE = 1 << 17
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True)
class _Head:
    """The first line and the headers of a request or an answer, as they came."""

    first: bytes
    lines: tuple[bytes, ...]

    def get(self, name: bytes) -> bytes:
        for line in self.lines:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name:
                return value.strip()
        return b""

    def without(self, name: bytes) -> _Head:
        return _Head(
            self.first, tuple(line for line in self.lines if not line.lower().startswith(name + b":"))
        )

    def bytes(self) -> bytes:
        return b"".join((self.first, *self.lines, b"\r\n"))

    @property
    def status(self) -> int:
        return int(self.first.split()[1])

    def is_alone(self, asked: _Head) -> bool:
        """Whether this answer has no body, whatever its headers tell."""
        return asked.first.startswith(b"HEAD ") or self.status in (204, 304)

    def tells_its_end(self, asked: _Head) -> bool:
        """Whether the client knows where this answer ends, and another may follow."""
        known = self.get(b"content-length") or self.get(b"transfer-encoding") or self.is_alone(asked)
        return bool(known) and self.get(b"connection").lower() != b"close"


class Door:
    """Listens on loopback and passes requests on to the store's S3 port."""

    def __init__(self, port: int, store: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._store = ("127.0.0.1", store)
        self._room = threading.BoundedSemaphore(MOST)
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the wait for the next client; closing would not
        self._listener.close()

    def _serve(self) -> None:
        while not self._closed:
            self._room.acquire()
            try:
                client, _ = self._listener.accept()
                threading.Thread(target=self._attend, args=(client,), daemon=True).start()
            except (OSError, RuntimeError):  # no descriptor or no thread left just now
                self._room.release()
                time.sleep(PAUSE)

    def _attend(self, client: socket.socket) -> None:
        client.settimeout(IDLE_SECONDS)
        try:
            with client, client.makefile("rb") as asked:
                head = _head(asked)
                while head and self._pass(head, asked, client):
                    head = _head(asked)
        except (OSError, ValueError):
            pass  # either side went away or speaks no HTTP: the connection ends, which its client notices
        finally:
            self._room.release()

    def _pass(self, head: _Head, asked: IO[bytes], client: socket.socket) -> bool:
        """One request and its answer; whether the connection can take another."""
        slashed = _with_slash(head)
        if slashed is None:
            return self._relay(head, asked, client)
        if head.get(b"expect"):
            client.sendall(_CONTINUE)
        body = b"".join(_body(asked, head))
        with self._asked(head, body) as (reply, rest):
            if reply.status != 403:
                return _hand(client, head, reply, rest)
            refusal = b"".join(_body(rest, reply, to=head))
        with self._asked(slashed, body) as (second, rest):
            if second.status != 403:
                return _hand(client, head, second, rest)
        client.sendall(reply.bytes() + refusal)
        return reply.tells_its_end(head)

    def _relay(self, head: _Head, asked: IO[bytes], client: socket.socket) -> bool:
        """A request as it comes; its body only when the store asks for it, if the client waits for that."""
        with socket.create_connection(self._store, IDLE_SECONDS) as store, store.makefile("rb") as answers:
            store.sendall(head.bytes())
            reply = _answer(answers) if head.get(b"expect") else None
            if reply and reply.status != 100:
                _hand(client, head, reply, answers)
                return False  # whether the body still comes is the client's choice
            if reply:
                client.sendall(reply.bytes())
            whole = True
            try:
                for piece in _body(asked, head):
                    store.sendall(piece)
            except BrokenPipeError:
                whole = False  # the store has said why before it stopped listening
            return _hand(client, head, _answer(answers), answers) and whole

    @contextmanager
    def _asked(self, head: _Head, body: bytes) -> Iterator[tuple[_Head, IO[bytes]]]:
        with socket.create_connection(self._store, IDLE_SECONDS) as store, store.makefile("rb") as answers:
            store.sendall(head.without(b"expect").bytes() + body)
            yield _answer(answers), answers


def _hand(client: socket.socket, asked: _Head, reply: _Head, rest: IO[bytes]) -> bool:
    """Pass an answer on; whether the connection can take another request."""
    client.sendall(reply.bytes())
    for piece in _body(rest, reply, to=asked):
        client.sendall(piece)
    return reply.tells_its_end(asked)


def _answer(stream: IO[bytes]) -> _Head:
    head = _head(stream)
    if head is None:
        raise OSError("the store closed the connection")
    return head


def _head(stream: IO[bytes]) -> _Head | None:
    """The next head; None when there is no further one."""
    lines: list[bytes] = []
    left = LONGEST_HEAD
    while left > 0:
        line = stream.readline(left)
        left -= len(line)
        if line in (b"\r\n", b"\n") and lines:
            return _Head(lines[0], tuple(lines[1:]))
        if not line.endswith(b"\n"):
            break
        lines.append(line)
    if not lines:
        return None
    raise ValueError("no whole head")


def _body(stream: IO[bytes], head: _Head, to: _Head | None = None) -> Iterator[bytes]:
    """What follows a head, piece by piece and as it came; `to`: the request that it answers."""
    length = head.get(b"content-length")
    if to and head.is_alone(to):
        return
    if b"chunked" in head.get(b"transfer-encoding").lower():
        yield from _chunks(stream)
    elif length:
        yield from _exactly(stream, int(length))
    elif to:
        yield from iter(lambda: stream.read(_PIECE), b"")


def _exactly(stream: IO[bytes], left: int) -> Iterator[bytes]:
    while left > 0:
        piece = stream.read1(min(left, _PIECE))  # type: ignore[attr-defined]
        if not piece:
            raise OSError("the body ended early")
        left -= len(piece)
        yield piece


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while True:
        line = stream.readline(LONGEST_HEAD)
        yield line
        size = int(line.split(b";")[0], 16)
        if size == 0:
            while line not in (b"\r\n", b"\n", b""):
                line = stream.readline(LONGEST_HEAD)
                yield line
            return
        yield from _exactly(stream, size + 2)


def _with_slash(head: _Head) -> _Head | None:
    """The request as boto3 signed it, if it is a bucket's own under V2."""
    method, target, version = head.first.split(b" ", 2)
    path, mark, query = target.partition(b"?")
    in_query = any(part.startswith(b"AWSAccessKeyId=") for part in query.split(b"&"))
    is_v2 = head.get(b"authorization").startswith(b"AWS ") or in_query
    is_kept = int(head.get(b"content-length") or 0) <= LONGEST_KEPT and not head.get(b"transfer-encoding")
    names_bucket = path.count(b"/") == 1 and path != b"/" and b".localhost" not in head.get(b"host")
    if not (is_v2 and is_kept and names_bucket):
        return None
    return _Head(b" ".join((method, path + b"/" + mark + query, version)), head.lines)
