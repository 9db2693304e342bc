"""Connections to the coordinator that have not yet been authenticated.

A pending connection is held for a few seconds and never blocks the coordinator;
when there are too many, the oldest is closed.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time

from trainshed.agent.wire import AgentConnection, AgentConnectionError, Message

_HANDSHAKE = 5.0
"""Seconds from connecting to a signed hello."""


class PendingConnections:
    """At most `limit` at once, registered in the coordinator's selector with their channel as data."""

    def __init__(self, secret: bytes, selector: selectors.BaseSelector, limit: int) -> None:
        self._secret, self._selector, self._limit = secret, selector, limit
        self._deadlines: dict[AgentConnection, float] = {}

    def accept(self, sock: socket.socket) -> None:
        if len(self._deadlines) >= self._limit:
            self._drop(next(iter(self._deadlines)))
        try:
            channel = AgentConnection(sock, self._secret, server=True)
            channel.greet()
        except (AgentConnectionError, OSError):
            sock.close()
            return
        self._deadlines[channel] = time.monotonic() + _HANDSHAKE
        self._selector.register(channel, selectors.EVENT_READ, channel)

    def receive_first(self, channel: AgentConnection) -> list[Message]:
        """Its first messages, once it is authenticated: it is then no longer pending, nor registered."""
        if channel not in self._deadlines:
            return []
        try:
            messages = channel.receive()
        except AgentConnectionError:
            self._drop(channel)
            return []
        if messages:
            self._forget(channel)
        return messages

    def sweep(self) -> None:
        """Close those whose deadline has passed."""
        now = time.monotonic()
        for channel in [known for known, deadline in self._deadlines.items() if now > deadline]:
            self._drop(channel)

    def close(self) -> None:
        for channel in list(self._deadlines):
            self._drop(channel)

    def _drop(self, channel: AgentConnection) -> None:
        self._forget(channel)
        channel.close()

    def _forget(self, channel: AgentConnection) -> None:
        del self._deadlines[channel]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(channel)
