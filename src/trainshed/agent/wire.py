"""The line between agents and their coordinator: JSON lines, each signed with the run's secret.

Both sides prove that they hold the secret before anything else is believed:
the server sends a nonce, the client answers with one of its own, and every
message carries an HMAC over the two nonces, its direction and its number, so
that it can be neither forged, replayed nor turned around.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
from typing import Any

Message = dict[str, Any]
_LONGEST = 1 << 20


class WireError(Exception):
    """The other side is gone, or is not who it must be."""


class Channel:
    """One end of the line; usable with select through `fileno`."""

    def __init__(self, sock: socket.socket, secret: bytes, server: bool) -> None:
        self._sock, self._secret, self._server = sock, secret, server
        self._nonces = b""
        self._sent = self._received = 0
        self._buffer = b""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._sock.fileno()

    def handshake(self) -> None:
        """Exchange nonces. The first signed message in each direction is the proof."""
        mine = os.urandom(16).hex().encode()
        if self._server:
            self._sock.sendall(mine + b"\n")
            self._nonces = mine + self._read_line()
        else:
            theirs = self._read_line()
            self._nonces = theirs + mine
            self._sock.sendall(mine + b"\n")

    def send(self, message: Message) -> None:
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        mark = self._mark(body, self._server, self._sent)
        self._sent += 1
        try:
            self._sock.sendall(mark + b" " + body + b"\n")
        except OSError as error:
            raise WireError(f"connection lost: {error}") from None

    def receive(self) -> list[Message]:
        """What has arrived since the last call; at least one read is made. WireError at the end."""
        try:
            chunk = self._sock.recv(1 << 16)
        except (BlockingIOError, TimeoutError):
            return []
        except OSError as error:
            raise WireError(f"connection lost: {error}") from None
        if not chunk:
            raise WireError("connection closed")
        self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > _LONGEST:
            raise WireError("message too long")
        return [self._open(line) for line in lines]

    def receive_one(self, timeout: float) -> Message:
        """The next message, within the time given."""
        self._sock.settimeout(timeout)
        try:
            return self._open(self._read_line())
        finally:
            self._sock.settimeout(None)

    def close(self) -> None:
        self._sock.close()

    def set_timeout(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)

    def _open(self, line: bytes) -> Message:
        mark, _, body = line.partition(b" ")
        if not hmac.compare_digest(mark, self._mark(body, not self._server, self._received)):
            raise WireError("a message was not signed with this run's secret")
        self._received += 1
        message = json.loads(body)
        if not isinstance(message, dict):
            raise WireError("a message was no object")
        return message

    def _mark(self, body: bytes, from_server: bool, number: int) -> bytes:
        head = b"%s %d %d " % (self._nonces, from_server, number)
        return hmac.new(self._secret, head + body, "sha256").hexdigest().encode()

    def _read_line(self) -> bytes:
        while b"\n" not in self._buffer:
            try:
                chunk = self._sock.recv(4096)
            except OSError as error:
                raise WireError(f"connection lost: {error}") from None
            if not chunk:
                raise WireError("connection closed")
            self._buffer += chunk
            if len(self._buffer) > _LONGEST:
                raise WireError("message too long")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
