"""The coordinator: a thread of node 0's agent that coordinates all nodes of a run.

It registers nodes, releases the barrier when all are ready, broadcasts the
first failure, and records how the attempt ended. It knows no ranks' work and
no engine. Every wait has an end and says whom it waited for.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass, field

from trainshed.agent import processes
from trainshed.agent.heads import heads_of
from trainshed.agent.pending_connections import PendingConnections
from trainshed.agent.wire import AgentConnection, AgentConnectionError, Message, encode
from trainshed.runs.chain import ChainWriter, GrowingFile, Head, pause
from trainshed.runs.events import AttemptFinished, EventWriter, RanksStarted, Stopping
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause

_TICK = 0.2
_STALL = 2.0
"""Seconds between two looks at the clock from which on the coordinator itself was held up."""
_BEAT = 2.0
"""Seconds between signs of life to all nodes."""
_PATIENCE = 6.0
_MOST_SILENCE = 180.0
"""A node whose signs of life come late is given this many times its lateness more, up to so many seconds."""
_LATE = 10.0
"""Seconds the coordinator stays after a failure, to tell nodes that come late."""
_SPARE = 256
"""Pending connections and other open files, in addition to one per node."""
_BURST = 1024
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


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
    channel: AgentConnection
    seen: float = field(default_factory=time.monotonic)
    late: float = 0.0
    """How late its signs of life have lately been: its machine is busy, not it silent."""
    silent: tuple[str, float] = ("", 0.0)
    """The process of the node that has not written for longest, and for how many seconds."""


class Coordinator(threading.Thread):
    """Serves one attempt. `outcome` is set when the thread ends."""

    def __init__(
        self,
        record: EventWriter,
        attempt: int,
        names: list[str],
        address: tuple[str, int],
        secret: bytes,
        grace: float,
        limits: Limits,
        chain: ChainWriter | None = None,
    ) -> None:
        super().__init__(name="coordinator", daemon=True)
        self._record, self._attempt = record, attempt
        self._chained = _Chained(record, chain)
        self._names, self._grace, self._limits = names, grace, limits
        self._peers: dict[int, _Peer] = {}
        self._open: set[int] = set()
        """The nodes that are here: neither lost nor gone by themselves."""
        self._cards: dict[int, Message] = {}
        """What each node wants all others to know of it before they start."""
        self._ready: set[int] = set()
        self._done: set[int] = set()
        self._failure: Failure | None = None
        self._stop_by = self._stay_until = 0.0
        self._going = self._finishing = False
        self._wanted_stop: Failure | None = None
        self._lock = threading.Lock()
        self._began = self._checked = self._beaten = time.monotonic()
        self.outcome: Outcome | None = None
        processes.allow_files(2 * (len(names) + _SPARE))
        self._listener = socket.create_server(address, backlog=min(4096, len(names) + 16))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._pending = PendingConnections(secret, self._selector, len(names) + _SPARE)

    def request_stop(self, failure: Failure) -> None:
        """Ask from another thread that everything stops, for this reason."""
        with self._lock:
            self._wanted_stop = self._wanted_stop or failure

    def run(self) -> None:
        last: Message = {"type": "end"}
        try:
            self._serve()
        except BaseException as error:  # a mistake of ours: the attempt must not look like a success
            traceback.print_exc()
            reason = f"the coordinator on node 0 ({self._names[0]}) failed: {error!r} (see its agent.log)"
            self._failure = self._failure or Failure(Cause.ENGINE, reason, 0, log="node-0/agent.log")
            last = self._stop_message()
        self._end(last)

    def _serve(self) -> None:
        self._began = self._checked = time.monotonic()
        while not self._is_over():
            for key, _ in self._selector.select(_TICK):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, AgentConnection):
                    self._admit(key.data)
                else:
                    self._read(key.data)
            self._check_time()

    def _end(self, last: Message) -> None:
        """Record how it ended, and let everybody go even if that fails."""
        self.outcome = Outcome.of(self._failure)
        try:
            self._record.append(AttemptFinished(self._attempt, self.outcome))
        except OSError:
            traceback.print_exc()
        self._chained.close()
        for peer in self._peers.values():
            with contextlib.suppress(AgentConnectionError):
                peer.channel.send(last)
            peer.channel.close()
        self._pending.close()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        """Accept all waiting connections as pending."""
        for _ in range(_BURST):
            try:
                sock, _address = self._listener.accept()
            except OSError as error:
                if error.errno in _FULL:
                    self._shut(error)
                return
            self._pending.accept(sock)

    def _shut(self, error: OSError) -> None:
        """No further node can be let in: without those it has, the run cannot be."""
        self._selector.unregister(self._listener)
        self._listener.close()
        self._pending.close()
        where = f"node 0 ({self._names[0]})"
        reason = f"{where} cannot hold a connection to each of {len(self._names)} nodes: {error.strerror}"
        hint = f"its limit is {processes.open_files()} open files, see `ulimit -n`"
        self._fail(Failure(Cause.ENGINE, f"{reason} ({hint})", node=0))
        self._stay_until = 0.0

    def _admit(self, channel: AgentConnection) -> None:
        """Make a guest that has proved itself the node it says it is."""
        messages = self._pending.receive_first(channel)
        if not messages:
            return
        hello, *more = messages
        index = hello.get("node")
        try:
            if hello.get("type") != "hello" or not isinstance(index, int):
                raise AgentConnectionError("unexpected hello")
            if not 0 <= index < len(self._names) or index in self._peers:
                raise AgentConnectionError("unexpected node")
            channel.send({"type": "welcome"})
        except AgentConnectionError:
            channel.close()
            return
        self._peers[index] = _Peer(channel)
        self._open.add(index)
        self._selector.register(channel, selectors.EVENT_READ, index)
        if self._failure:
            self._tell(index, encode(self._stop_message()))
        for message in more:
            self._handle(index, message)

    def _read(self, index: int) -> None:
        if index not in self._open:
            return
        peer = self._peers[index]
        try:
            messages = peer.channel.receive()
        except AgentConnectionError as error:
            self._drop(index, f"its agent is gone ({error})")
            return
        peer.seen = time.monotonic()
        for message in messages:
            self._handle(index, message)

    def _handle(self, index: int, message: Message) -> None:
        match message.get("type"):
            case "beat":
                peer, late = self._peers[index], message.get("late")
                late = float(late) if isinstance(late, int | float) else 0.0
                peer.late = max(late, 0.9 * peer.late)
                peer.silent = _silent(message.get("silent"))
            case "card":
                self._cards[index] = message["card"]
                if not self._failure and self._is_all(self._cards):
                    cards = [self._cards[i] for i in range(len(self._names))]
                    self._broadcast({"type": "cards", "cards": cards})
            case "ready":
                self._ready.add(index)
                if not self._going and not self._failure and self._is_all(self._ready):
                    self._going = True
                    self._record.append(RanksStarted(self._attempt))
                    self._broadcast({"type": "go"})
            case "heads":
                self._chained.note(heads_of(message))
            case "failed":
                self._fail(Failure.from_json(message["failure"]))
            case "done":
                self._done.add(index)
                if not self._finishing and not self._failure and self._is_all(self._done):
                    self._finishing = True
                    self._broadcast({"type": "finish"})
            case "closed":
                self._part(index)
            case _:
                pass

    def _is_all(self, nodes: Collection[int]) -> bool:
        return len(nodes) == len(self._names)

    def _part(self, index: int) -> None:
        self._open.discard(index)
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._peers[index].channel)

    def _drop(self, index: int, why: str) -> None:
        self._part(index)
        self._fail(Failure(Cause.NODE, f"node {index} ({self._names[index]}) was lost: {why}", node=index))

    def _fail(self, failure: Failure) -> None:
        if self._failure:
            return
        self._failure = failure
        now = time.monotonic()
        self._stop_by = now + self._grace_of(failure) + self._limits.closing
        self._stay_until = now + _LATE
        self._record.append(Stopping(self._attempt, failure.reason))
        self._broadcast(self._stop_message())

    def _stop_message(self) -> Message:
        assert self._failure
        wanted = self._failure.cause in (Cause.STOP, Cause.TIMEOUT)
        grace = self._grace_of(self._failure)
        return {"type": "stop", "reason": self._failure.reason, "grace": grace, "wanted": wanted}

    def _grace_of(self, failure: Failure) -> float:
        """A user who stops waits for the job's own grace; after a failure there is no reason to wait long."""
        return self._grace if failure.cause in (Cause.STOP, Cause.TIMEOUT) else min(self._grace, 5.0)

    def _broadcast(self, message: Message) -> None:
        body = encode(message)
        for index in list(self._open):
            self._tell(index, body)

    def _tell(self, index: int, body: bytes) -> None:
        if index not in self._open:
            return
        try:
            self._peers[index].channel.send_encoded(body)
        except AgentConnectionError as error:
            self._drop(index, str(error))

    def _is_over(self) -> bool:
        everybody_came = self._is_all(self._peers)
        if not self._failure:
            return everybody_came and not self._open
        now = time.monotonic()
        awaited = not everybody_came and now < self._stay_until
        return now > self._stop_by or not (self._open or awaited)

    def _check_time(self) -> None:
        now = time.monotonic()
        passed = now - self._checked
        if passed < _TICK / 2:
            return
        self._checked = now
        self._pending.sweep()
        with self._lock:
            wanted, self._wanted_stop = self._wanted_stop, None
        if wanted:
            self._fail(wanted)
            self._stay_until = 0.0  # the process that requested it stops all nodes itself
        self._check_silence(now, passed)
        if now - self._beaten > _BEAT:
            self._beaten = now
            self._broadcast({"type": "beat"})
        self._chained.append_if_due(now - self._began)
        if not self._failure:
            self._check_limits(now - self._began)

    def _check_silence(self, now: float, passed: float) -> None:
        """Drop nodes that sent nothing for too long; time in which the coordinator itself was held up does not count."""
        for index in list(self._open):
            peer = self._peers[index]
            if passed > _STALL:
                peer.seen = min(now, peer.seen + passed)
            limit = min(self._limits.silence + _PATIENCE * peer.late, _MOST_SILENCE)
            if now - peer.seen > limit:
                self._drop(index, f"no message from it for {limit:.0f} s")

    def _check_limits(self, spent: float) -> None:
        limits = self._limits
        if not self._is_all(self._peers) and spent > limits.register:
            missing = self._without(self._peers)
            reason = f"no sign of {self._list(missing)} within {limits.register:.0f} s"
            self._fail(Failure(Cause.NODE, reason, missing[0]))
        elif not self._going and spent > limits.ready:
            late = self._without(self._ready)
            reason = f"{self._list(late)} not ready within {limits.ready:.0f} s"
            self._fail(Failure(Cause.STAGING, reason, late[0]))
        elif limits.total is not None and spent > limits.total:
            waits = self._list(self._without(self._done))
            reason = f"not finished within its timeout of {limits.total:g} s; still running: {waits}"
            self._fail(Failure(Cause.TIMEOUT, reason + self._longest_silent()))

    def _longest_silent(self) -> str:
        """The rank that has not written for longest: of those that wait for one another, likely the one that hangs."""
        index = max(self._open, key=lambda i: self._peers[i].silent[1], default=None)
        if index is None or not self._peers[index].silent[0]:
            return ""
        process, seconds = self._peers[index].silent
        name = process.replace("-", " ")
        return f"; longest without output: {name} on node {index}, for {seconds:.0f} s"

    def _without(self, nodes: Collection[int]) -> list[int]:
        return [i for i in range(len(self._names)) if i not in nodes]

    def _list(self, indexes: list[int]) -> str:
        shown = ", ".join(f"node {i} ({self._names[i]})" for i in indexes[:4])
        return shown + (f" and {len(indexes) - 4} more" if len(indexes) > 4 else "")


class _Chained:
    """The heads that nodes sent, on their way into the chain. A chain that cannot be written ends; the run goes on."""

    def __init__(self, record: EventWriter, chain: ChainWriter | None) -> None:
        self._chain, self._growing = chain, GrowingFile()
        self._name, self._path = f"events/{record.name}.jsonl", record.folder / f"{record.name}.jsonl"
        self._noted: dict[str, Head] = {}
        self._due = 0.0

    def note(self, heads: dict[str, Head]) -> None:
        self._noted |= heads

    def append_if_due(self, elapsed: float) -> None:
        if self._chain is None or elapsed < self._due:
            return
        try:
            size = self._chain.append(self._gathered(), time.time())
        except OSError:
            self._give_up()
        else:
            self._due = elapsed + pause(size, elapsed)

    def close(self) -> None:
        if self._chain is None:
            return
        try:
            self._chain.close(self._gathered(), time.time())
        except OSError:
            self._give_up()

    def _gathered(self) -> dict[str, Head]:
        head = self._growing.read_on(self._path)
        found, self._noted = self._noted | ({self._name: head} if head else {}), {}
        return found

    def _give_up(self) -> None:
        traceback.print_exc()
        self._chain = None


def _silent(value: object) -> tuple[str, float]:
    """What a node says of its most silent process."""
    match value:
        case [str(process), int(seconds) | float(seconds)]:
            return process[:80], float(seconds)
        case _:
            return "", 0.0
