"""Where the ranks of a world wait for one another at their end: a socket of rank 0.

Every other rank holds a connection to it from the moment it has joined, and sends one byte when its work
is done. A connection that ends without it is a rank that died, for which no rank waits. Rank 0 answers all
with one byte when there is no rank left to wait for. Nothing is decided here but when a process leaves.
Standard library only: the job's own Python imports it.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import Any

import trainshed_overlay  # type: ignore[import-not-found,unused-ignore]

_CONNECT = 60.0
_DONE, _LEAVE = b"D", b"L"


class Meeting:
    """This rank's part in it. `is_mine` is False in children that were forked off."""

    def __init__(self, address: str, rank: int, size: int) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._rank, self._size = (host, int(port)), rank, size
        self._owner = os.getpid()
        self._socket: Any = None
        self._caller: Any = None
        if size > 1 and rank == 0:
            self._listen()
        elif size > 1:
            self._caller = threading.Thread(target=self._call, name="trainshed meeting", daemon=True)
            self._caller.start()
        if hasattr(os, "register_at_fork"):
            # A child that holds the connection would make its dead parent look alive.
            os.register_at_fork(after_in_child=self._drop)

    @property
    def is_mine(self) -> bool:
        return os.getpid() == self._owner

    def wait(self, limit: float) -> None:
        """Come back when all ranks are done or dead, after `limit` seconds at the latest."""
        if self._caller is not None:
            self._caller.join(1.0)
        if self._socket is None:
            return
        try:
            if self._rank == 0:
                self._gather(time.monotonic() + limit)
            else:
                self._answer(time.monotonic() + limit)
        except OSError:
            pass  # the other ranks are gone: nothing is left to wait for

    def _listen(self) -> None:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(self._address)
            server.listen(self._size)
        except OSError:
            # Another world of this job has the port: these ranks leave one by one.
            server.close()
            return
        self._socket = server

    def _call(self) -> None:
        deadline = time.monotonic() + _CONNECT
        pause = 0.01
        while time.monotonic() < deadline:
            try:
                connection = socket.create_connection(self._address, timeout=5.0)
                connection.sendall(b"%08d" % self._rank)
                self._socket = connection
                return
            except OSError:
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _answer(self, deadline: float) -> None:
        self._socket.sendall(_DONE)
        if not _readable([self._socket], deadline):
            trainshed_overlay.say(f"rank {self._rank} leaves before the others: they did not end in time")

    def _gather(self, deadline: float) -> None:
        self._socket.setblocking(False)
        heard: dict[Any, bytes] = {}
        waiting = set(range(1, self._size))
        while waiting:
            ready = _readable([self._socket, *heard], deadline)
            if not ready:
                names = ", ".join(str(rank) for rank in sorted(waiting)[:8])
                trainshed_overlay.say(f"rank 0 leaves before rank {names}: no sign of their end in time")
                break
            for item in ready:
                if item is self._socket:
                    heard[item.accept()[0]] = b""
                    continue
                data = _received(item)
                text = heard[item] = (heard[item] + data)[:9]
                if len(text) == 9 or (len(text) == 8 and not data):
                    waiting.discard(int(text[:8]))
                if not data:
                    del heard[item]
        for connection in heard:
            try:
                connection.send(_LEAVE)
            except OSError:
                continue

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _received(connection: Any) -> bytes:
    try:
        data: bytes = connection.recv(64)
    except OSError:
        return b""
    return data


def _readable(sockets: list[Any], deadline: float) -> list[Any]:
    """Those of them that can be read, as soon as one can; none at the deadline. (select() ends at 1024 files.)"""
    poll = select.poll()
    known = {item.fileno(): item for item in sockets}
    for number in known:
        poll.register(number, select.POLLIN)
    left = max(0.0, deadline - time.monotonic())
    return [known[number] for number, _ in poll.poll(1000 * left)]
