"""An agent's end of the line to its coordinator."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from trainshed.agent.wire import Channel, Message, WireError

_BEAT = 1.0
_HANDSHAKE = 10.0


class Link:
    """A connection that stays; heartbeats go out whenever it is pumped."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._last = time.monotonic()

    @classmethod
    def open(
        cls, address: tuple[str, int], node: int, secret: bytes, limit: float, check: Callable[[], object]
    ) -> Link:
        """Reach the coordinator within `limit` seconds; WireError names the address that did not answer.

        `check` is called between tries and may raise to end them.
        """
        deadline = time.monotonic() + limit
        pause = 0.01
        while True:
            try:
                sock = socket.create_connection(address, timeout=_HANDSHAKE)
                channel = Channel(sock, secret, server=False)
                channel.handshake(_HANDSHAKE)
                channel.send({"type": "hello", "node": node})
                channel.receive_one(_HANDSHAKE)
                return cls(channel)
            except (OSError, WireError) as error:
                if time.monotonic() > deadline:
                    where = f"{address[0]}:{address[1]}"
                    raise WireError(
                        f"cannot reach the coordinator at {where} within {limit:.0f} s: {error}"
                    ) from None
                check()
                time.sleep(pause)
                pause = min(pause * 1.5, 0.5)

    def send(self, message: Message) -> None:
        self.channel.send(message)

    def beat(self) -> None:
        if time.monotonic() - self._last >= _BEAT:
            self._last = time.monotonic()
            self.channel.send({"type": "beat"})
