"""An agent's end of the line to its coordinator."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from trainshed.agent.wire import AgentConnection, AgentConnectionError, Message

_BEAT = 1.0
_HANDSHAKE = 10.0


class Link:
    """A connection that stays; heartbeats go out whenever it is pumped."""

    def __init__(self, channel: AgentConnection) -> None:
        self.channel = channel
        self._last = self.heard = time.monotonic()

    @classmethod
    def open(
        cls, address: tuple[str, int], node: int, secret: bytes, limit: float, check: Callable[[], object]
    ) -> Link:
        """Reach the coordinator within `limit` seconds; AgentConnectionError names the address that did not answer.

        `check` is called between tries and may raise to end them.
        """
        deadline = time.monotonic() + limit
        pause = 0.01
        while True:
            try:
                sock = socket.create_connection(address, timeout=_HANDSHAKE)
                channel = AgentConnection(sock, secret, server=False)
                channel.handshake(_HANDSHAKE)
                channel.send({"type": "hello", "node": node})
                channel.receive_one(_HANDSHAKE)
                return cls(channel)
            except (OSError, AgentConnectionError) as error:
                if time.monotonic() > deadline:
                    where = f"{address[0]}:{address[1]}"
                    raise AgentConnectionError(
                        f"cannot reach the coordinator at {where} within {limit:.0f} s: {error}"
                    ) from error
                check()
                time.sleep(pause)
                pause = min(pause * 1.5, 0.5)

    def send(self, message: Message) -> None:
        self.channel.send(message)

    def beat(self, quietest: Callable[[], tuple[str, float] | None] = lambda: None) -> bool:
        """Send a sign of life if it is time for one, with how late it is: a busy machine is forgiven for it.

        `quietest` names the process that has been silent for longest, and the seconds.
        """
        late = time.monotonic() - self._last - _BEAT
        if late < 0:
            return False
        self._last = time.monotonic()
        message: Message = {"type": "beat", "late": round(late, 1)}
        if silent := quietest():
            message["silent"] = list(silent)
        self.channel.send(message)
        return True
