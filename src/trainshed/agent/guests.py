"""Those who have connected to the coordinator and not yet proved that they belong to the run.

A guest costs a connection for a few seconds and never the coordinator's time:
nobody is waited for, and the oldest gives way when there are too many.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time

from trainshed.agent.wire import AgentConnection, AgentConnectionError, Message

_HANDSHAKE = 5.0
"""Seconds from connecting to a signed hello."""


class Guests:
    """At most `most` of them at once, watched by the coordinator's selector under their channel."""

    def __init__(self, secret: bytes, selector: selectors.BaseSelector, most: int) -> None:
        self._secret, self._selector, self._most = secret, selector, most
        self._deadlines: dict[AgentConnection, float] = {}

    def greet(self, sock: socket.socket) -> None:
        if len(self._deadlines) >= self._most:
            self._dismiss(next(iter(self._deadlines)))
        try:
            channel = AgentConnection(sock, self._secret, server=True)
            channel.greet()
        except (AgentConnectionError, OSError):
            sock.close()
            return
        self._deadlines[channel] = time.monotonic() + _HANDSHAKE
        self._selector.register(channel, selectors.EVENT_READ, channel)

    def hear(self, channel: AgentConnection) -> list[Message]:
        """Its first messages, once it has proved itself: then it is no guest any more, nor watched."""
        if channel not in self._deadlines:
            return []
        try:
            messages = channel.receive()
        except AgentConnectionError:
            self._dismiss(channel)
            return []
        if messages:
            self._forget(channel)
        return messages

    def sweep(self) -> None:
        """Dismiss those whose time is over."""
        now = time.monotonic()
        for channel in [known for known, deadline in self._deadlines.items() if now > deadline]:
            self._dismiss(channel)

    def close(self) -> None:
        for channel in list(self._deadlines):
            self._dismiss(channel)

    def _dismiss(self, channel: AgentConnection) -> None:
        self._forget(channel)
        channel.close()

    def _forget(self, channel: AgentConnection) -> None:
        del self._deadlines[channel]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(channel)
