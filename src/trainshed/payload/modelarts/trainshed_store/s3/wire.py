"""HTTP/1.1 on one kept-alive socket: just what an object store needs, with little work per request.

It knows nothing of S3. The standard http.client spends several times as much CPU on a small request,
and on small files the client's CPU is the store's CPU.
"""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .proxy import HttpProxy

CHUNK = 1 << 18
HEAD = 1 << 15
MAX_HEAD = 1 << 16


class WireError(OSError):
    """The connection broke, or what came was not a whole HTTP answer."""


class ProxyRefusedError(OSError):
    """The proxy refused a connection to the host."""


@dataclass
class Answer:
    """Status, headers (lower-case names) and body of one response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Sink(ABC):
    """Takes a body piece by piece, while each is still in the processor's cache."""

    def __init__(self, length: int, buffer: memoryview) -> None:
        self.length, self.buffer = length, buffer

    @abstractmethod
    def restart(self) -> None:
        """A body begins; what came of an earlier one is void."""

    @abstractmethod
    def take(self, data: memoryview) -> None: ...


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    secure: bool
    verify: bool = True
    proxy: HttpProxy | None = None


class Connection:
    """One socket. Not safe to share between threads; after any exception it must be closed."""

    def __init__(self, address: Address, connect_timeout: float, idle_timeout: float) -> None:
        first = address.proxy or address
        sock = socket.create_connection((first.host, first.port), timeout=connect_timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.secure:
                if address.proxy:
                    _tunnel(sock, address, address.proxy)
                sock = _secured(sock, address)
                sock.settimeout(idle_timeout)
            else:
                _limit(sock, idle_timeout)
        except BaseException:
            sock.close()
            raise
        self._sock = sock
        self._rest = b""
        self._buffer = memoryview(bytearray(HEAD))
        self._whole = 0 if address.secure else socket.MSG_WAITALL  # one call for all that is asked for
        self.reusable = True

    def close(self) -> None:
        self._sock.close()

    def send(self, head: bytes, body: bytes | bytearray | memoryview = b"") -> None:
        try:
            if len(body) <= CHUNK:
                self._sock.sendall(head + body)
                return
            self._sock.sendall(head)
            self._sock.sendall(body)
        except BlockingIOError as error:
            raise socket.timeout("timed out") from error  # noqa: UP041 (Python 3.7)

    def receive(self, method: str, into: memoryview | Sink | None = None) -> Answer:
        """Read one response. With `into`, a body of known length goes there and `body` is empty."""
        status, headers = self._head()
        while status < 200:
            status, headers = self._head()
        if headers.get("connection", "").lower() == "close":
            self.reusable = False
        length_text = headers.get("content-length")
        length = 0 if length_text is None else _number(length_text, 10)
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers, b"")
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return Answer(status, headers, self._chunked())
        if length_text is None:
            self.reusable = False
            return Answer(status, headers, self._to_end())
        if into is not None and status < 300:
            if isinstance(into, Sink) and length == into.length:
                self._pour(into)
                return Answer(status, headers, b"")
            if isinstance(into, memoryview) and length <= len(into):
                self._fill(into[:length])
                return Answer(status, headers, b"")
        buffer = bytearray(length)
        self._fill(memoryview(buffer))
        return Answer(status, headers, bytes(buffer))

    def _more(self) -> None:
        count = self._receive_into(self._buffer)
        if not count:
            raise WireError("connection closed in the middle of an answer")
        self._rest += self._buffer[:count]

    def _receive_into(self, view: memoryview, flags: int = 0) -> int:
        try:
            return self._sock.recv_into(view, len(view), flags)
        except BlockingIOError as error:
            raise socket.timeout("timed out") from error  # noqa: UP041 (Python 3.7)

    def _head(self) -> tuple[int, dict[str, str]]:
        while True:
            end = self._rest.find(b"\r\n\r\n")
            if end >= 0:
                break
            if len(self._rest) > MAX_HEAD:
                raise WireError("answer has no end of headers")
            self._more()
        lines = self._rest[:end].decode("latin-1").split("\r\n")
        self._rest = self._rest[end + 4 :]
        if not lines[0].startswith("HTTP/1.") or not lines[0][9:12].isdigit():
            raise WireError("not an HTTP answer")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(lines[0][9:12]), headers

    def _fill(self, view: memoryview) -> None:
        have = min(len(self._rest), len(view))
        view[:have] = self._rest[:have]
        self._rest = self._rest[have:]
        while have < len(view):
            count = self._receive_into(view[have : have + (1 << 20)], self._whole)
            if not count:
                raise WireError(f"body ended after {have} of {len(view)} bytes")
            have += count

    def _pour(self, sink: Sink) -> None:
        sink.restart()
        left = sink.length
        while left:
            piece = sink.buffer[: min(left, len(sink.buffer))]
            self._fill(piece)
            sink.take(piece)
            left -= len(piece)

    def _chunked(self) -> bytes:
        parts: list[bytes] = []
        while True:
            size = _number(self._line().split(b";")[0].decode("latin-1"), 16)
            if size == 0:
                while self._line():
                    pass
                return b"".join(parts)
            part = bytearray(size)
            self._fill(memoryview(part))
            parts.append(bytes(part))
            if self._line():
                raise WireError("chunk has no end")

    def _line(self) -> bytes:
        while b"\r\n" not in self._rest:
            if len(self._rest) > MAX_HEAD:
                raise WireError("line has no end")
            self._more()
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def _to_end(self) -> bytes:
        parts = [self._rest]
        while True:
            count = self._receive_into(self._buffer)
            if not count:
                return b"".join(parts)
            parts.append(bytes(self._buffer[:count]))


def _number(text: str, base: int) -> int:
    """A length as HTTP writes it: digits and nothing else."""
    text = text.strip().lower()
    if not text or text.strip("0123456789abcdef"[:base]):
        raise WireError(f"not a length: {text[:40]!r}")
    return int(text, base)


def _limit(sock: socket.socket, seconds: float) -> None:
    """Let the kernel watch the time: Python would ask it before each call whether the socket is ready."""
    whole = int(seconds)
    limit = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
    sock.setblocking(True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _tunnel(sock: socket.socket, address: Address, proxy: HttpProxy) -> None:
    """Ask a proxy for a connection to the host; the proxy cannot read what is sent through it."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    where = f"{host}:{address.port}"
    sock.sendall(f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n{proxy.header}\r\n".encode("latin-1"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = sock.recv(1)  # what follows the answer belongs to the host
        if not piece or len(answer) > MAX_HEAD:
            raise WireError(f"the proxy {proxy.host}:{proxy.port} gave no answer")
        answer += piece
    status = answer[9:12]
    if status != b"200":
        line = answer.split(b"\r\n")[0].decode("latin-1")
        raise ProxyRefusedError(
            f"the proxy {proxy.host}:{proxy.port} refused a connection to {where}: {line}"
        )


def _secured(sock: socket.socket, address: Address) -> socket.socket:
    import ssl

    context = ssl.create_default_context()
    if not address.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(sock, server_hostname=address.host)
