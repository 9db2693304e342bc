"""The line between agents and their coordinator: JSON lines, each signed with the run's secret.

Both sides prove that they hold the secret before anything else is believed:
the server sends a nonce, the client answers with one of its own, and every
message has an HMAC over the two nonces, its direction and its number, so
that it can be neither forged, replayed nor turned around.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import time
from typing import Any

Message = dict[str, Any]
_LONGEST = 1 << 20
_FIRST = 1 << 12
"""Bytes a line may have from a peer that is not authenticated yet."""
_PATIENCE = 10.0
"""Seconds the other side has to take what is sent to it."""


class AgentConnectionError(Exception):
    """The other side is gone, or is not who it must be."""


def encode(message: Message) -> bytes:
    """A message as it is sent: once for all who get it, each channel then signs it."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


class AgentConnection:
    """One end of the line; usable with select through `fileno`."""

    def __init__(self, sock: socket.socket, secret: bytes, server: bool) -> None:
        self._sock, self._secret, self._server = sock, secret, server
        self._mine = os.urandom(16).hex().encode()
        self._nonces = b""
        self._sent = self._received = 0
        self._buffer = b""
        sock.settimeout(_PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._sock.fileno()

    def greet(self) -> None:
        """As the server: send a nonce. The client's own is the first line to come back."""
        self._put(self._mine)

    def handshake(self, limit: float) -> None:
        """As the client: answer the server's nonce, within the time given.

        The first signed message in each direction is the proof.
        """
        theirs = self._read_line(time.monotonic() + limit)
        self._nonces = theirs + self._mine
        self._put(self._mine)

    def send(self, message: Message) -> None:
        self.send_encoded(encode(message))

    def send_encoded(self, body: bytes) -> None:
        mac = self._sign(body, self._server, self._sent)
        self._sent += 1
        self._put(mac + b" " + body)

    def receive(self) -> list[Message]:
        """What has arrived since the last call; at least one read is made. AgentConnectionError at the end."""
        try:
            chunk = self._sock.recv(1 << 16 if self._received else _FIRST)
        except (BlockingIOError, TimeoutError):
            return []
        except OSError as error:
            raise AgentConnectionError(f"connection lost: {error}") from error
        self._keep(chunk)
        *lines, self._buffer = self._buffer.split(b"\n")
        return [self._open(line) for line in self._signed(lines)]

    def receive_one(self, timeout: float) -> Message:
        """The next message, within the time given; what follows it is left for `receive`."""
        deadline = time.monotonic() + timeout
        lines: list[bytes] = []
        while not lines:
            lines = self._signed([self._read_line(deadline)])
        return self._open(lines[0])

    def close(self) -> None:
        self._sock.close()

    def _signed(self, lines: list[bytes]) -> list[bytes]:
        """The lines that are messages: all but the client's nonce, which is kept."""
        if self._nonces or not lines:
            return lines
        self._nonces = self._mine + lines[0]
        return lines[1:]

    def _open(self, line: bytes) -> Message:
        mac, _, body = line.partition(b" ")
        if not hmac.compare_digest(mac, self._sign(body, not self._server, self._received)):
            raise AgentConnectionError("a message was not signed with this run's secret")
        self._received += 1
        try:
            message = json.loads(body)
        except ValueError as error:
            raise AgentConnectionError("a message is not valid JSON") from error
        if not isinstance(message, dict):
            raise AgentConnectionError("a message is not a JSON object")
        return message

    def _sign(self, body: bytes, from_server: bool, number: int) -> bytes:
        head = b"%s %d %d " % (self._nonces, from_server, number)
        return hmac.new(self._secret, head + body, "sha256").hexdigest().encode()

    def _put(self, line: bytes) -> None:
        try:
            self._sock.sendall(line + b"\n")
        except OSError as error:
            raise AgentConnectionError(f"connection lost: {error}") from error

    def _keep(self, chunk: bytes) -> None:
        if not chunk:
            raise AgentConnectionError("connection closed")
        self._buffer += chunk
        if len(self._buffer) > (_LONGEST if self._received else _FIRST) and b"\n" not in chunk:
            raise AgentConnectionError("message too long")

    def _read_line(self, deadline: float) -> bytes:
        """One line and no byte more: what follows wakes the reader that waits for the socket."""
        try:
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("no answer in time")
                self._sock.settimeout(left)
                seen = self._sock.recv(4096, socket.MSG_PEEK)
                self._keep(self._sock.recv(seen.find(b"\n") + 1 or len(seen)) if seen else b"")
        except OSError as error:
            raise AgentConnectionError(f"connection lost: {error}") from error
        finally:
            self._sock.settimeout(_PATIENCE)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
