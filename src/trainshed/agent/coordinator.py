"""The coordinator: a thread of node 0's agent that brings all nodes through a run together.

It registers nodes, releases the barrier when all are ready, broadcasts the
first failure, and records how the attempt ended. It knows no ranks' work and
no engine. Every wait has an end and says whom it waited for.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field

from trainshed.agent.wire import Channel, Message, WireError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause

_HANDSHAKE = 5.0
_TICK = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the coordinator waits for what, in seconds."""

    register: float = 300.0
    ready: float = 86400.0
    silence: float = 20.0
    closing: float = 3600.0
    total: float | None = None


@dataclass
class _Peer:
    channel: Channel
    seen: float = field(default_factory=time.monotonic)
    card: Message | None = None
    """What the node wants all others to know of it before they start."""
    ready: bool = False
    done: bool = False
    closed: bool = False


class Coordinator(threading.Thread):
    """Serves one attempt. `outcome` is set when the thread ends."""

    def __init__(
        self,
        run: RunDirectory,
        names: list[str],
        address: tuple[str, int],
        secret: bytes,
        grace: float,
        limits: Limits,
    ) -> None:
        super().__init__(name="coordinator", daemon=True)
        self._run, self._names, self._secret, self._grace, self._limits = run, names, secret, grace, limits
        self._peers: dict[int, _Peer] = {}
        self._gone: set[int] = set()
        self._failure: Failure | None = None
        self._stop_by: float | None = None
        self._going = self._finishing = False
        self._wanted_stop: Failure | None = None
        self._lock = threading.Lock()
        self.outcome: Outcome | None = None
        self._listener = socket.create_server(address, backlog=min(4096, len(names) + 16))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def request_stop(self, failure: Failure) -> None:
        """Ask from another thread that everything stops, for this reason."""
        with self._lock:
            self._wanted_stop = self._wanted_stop or failure

    def run(self) -> None:
        began = time.monotonic()
        try:
            while not self._is_over():
                for key, _ in self._selector.select(_TICK):
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._read(key.data)
                self._check_time(began)
        finally:
            outcome = Outcome.of(self._failure)
            self._run.append(Kind.ATTEMPT_FINISHED, **outcome.to_json())
            self.outcome = outcome
            for peer in self._peers.values():
                with contextlib.suppress(WireError):
                    peer.channel.send({"type": "end"})
                peer.channel.close()
            self._selector.close()
            self._listener.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        # A handshake is a few bytes; a stranger who stays silent costs at most its time limit.
        sock.settimeout(_HANDSHAKE)
        channel = Channel(sock, self._secret, server=True)
        try:
            channel.handshake()
            hello = channel.receive_one(_HANDSHAKE)
            index = int(hello["node"])
            if hello.get("type") != "hello" or not 0 <= index < len(self._names) or index in self._peers:
                raise WireError("unexpected hello")
            channel.send({"type": "welcome"})
        except (WireError, KeyError, ValueError, TypeError):
            sock.close()
            return
        self._peers[index] = _Peer(channel)
        self._selector.register(channel, selectors.EVENT_READ, index)
        if self._failure:
            self._tell(index, self._stop_message())

    def _read(self, index: int) -> None:
        peer = self._peers[index]
        try:
            messages = peer.channel.receive()
        except WireError as error:
            self._drop(index, f"its agent is gone ({error})")
            return
        peer.seen = time.monotonic()
        for message in messages:
            self._handle(index, peer, message)

    def _handle(self, index: int, peer: _Peer, message: Message) -> None:
        match message.get("type"):
            case "card":
                peer.card = message["card"]
                if not self._failure and all(self._all("card")):
                    cards = [self._peers[i].card for i in range(len(self._names))]
                    self._broadcast({"type": "cards", "cards": cards})
            case "ready":
                peer.ready = True
                if not self._going and not self._failure and all(self._all("ready")):
                    self._going = True
                    self._run.append(Kind.RUNNING)
                    self._broadcast({"type": "go"})
            case "failed":
                self._fail(Failure.from_json(message["failure"]))
            case "done":
                peer.done = True
                if not self._finishing and not self._failure and all(self._all("done")):
                    self._finishing = True
                    self._broadcast({"type": "finish"})
            case "closed":
                peer.closed = True
                self._selector.unregister(peer.channel)
            case _:
                pass

    def _all(self, mark: str) -> list[bool]:
        return [i in self._peers and bool(getattr(self._peers[i], mark)) for i in range(len(self._names))]

    def _drop(self, index: int, why: str) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._peers[index].channel)
        self._gone.add(index)
        if not self._peers[index].closed:
            self._fail(
                Failure(Cause.NODE, f"node {index} ({self._names[index]}) was lost: {why}", node=index)
            )

    def _fail(self, failure: Failure) -> None:
        if self._failure:
            return
        self._failure = failure
        self._stop_by = time.monotonic() + self._grace_of(failure) + self._limits.closing
        self._run.append(Kind.STOPPING, reason=failure.reason)
        self._broadcast(self._stop_message())

    def _stop_message(self) -> Message:
        assert self._failure
        return {"type": "stop", "reason": self._failure.reason, "grace": self._grace_of(self._failure)}

    def _grace_of(self, failure: Failure) -> float:
        """A user who stops waits for the job's own grace; after a failure nobody gains by waiting long."""
        return self._grace if failure.cause in (Cause.STOP, Cause.TIMEOUT) else min(self._grace, 5.0)

    def _broadcast(self, message: Message) -> None:
        for index in list(self._peers):
            self._tell(index, message)

    def _tell(self, index: int, message: Message) -> None:
        if index in self._gone or self._peers[index].closed:
            return
        try:
            self._peers[index].channel.send(message)
        except WireError as error:
            self._drop(index, str(error))

    def _is_over(self) -> bool:
        present = [i for i in self._peers if i not in self._gone]
        if self._failure:
            late = self._stop_by is not None and time.monotonic() > self._stop_by
            return late or all(self._peers[i].closed for i in present)
        return len(present) == len(self._names) and all(self._peers[i].closed for i in present)

    def _check_time(self, began: float) -> None:
        with self._lock:
            wanted, self._wanted_stop = self._wanted_stop, None
        if wanted:
            self._fail(wanted)
        now, limits = time.monotonic(), self._limits
        for index, peer in list(self._peers.items()):
            if index not in self._gone and not peer.closed and now - peer.seen > limits.silence:
                self._drop(index, f"nothing heard of it for {limits.silence:.0f} s")
        if self._failure:
            return
        missing = [i for i in range(len(self._names)) if i not in self._peers]
        if missing and now - began > limits.register:
            self._fail(
                Failure(
                    Cause.NODE, f"no sign of {self._list(missing)} within {limits.register:.0f} s", missing[0]
                )
            )
        elif not self._going and now - began > limits.ready:
            late = [i for i, ready in enumerate(self._all("ready")) if not ready]
            self._fail(
                Failure(Cause.STAGING, f"{self._list(late)} not ready within {limits.ready:.0f} s", late[0])
            )
        elif limits.total is not None and now - began > limits.total:
            waits = [i for i, done in enumerate(self._all("done")) if not done]
            reason = (
                f"not finished within its timeout of {limits.total:g} s; still at work: {self._list(waits)}"
            )
            self._fail(Failure(Cause.TIMEOUT, reason))

    def _list(self, indexes: list[int]) -> str:
        shown = ", ".join(f"node {i} ({self._names[i]})" for i in indexes[:4])
        return shown + (f" and {len(indexes) - 4} more" if len(indexes) > 4 else "")
