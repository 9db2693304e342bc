"""The coordinator serves its nodes whatever strangers do, and never calls its own mistake a success."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support import until
from trainshed.agent import coordinator as module
from trainshed.agent.coordinator import Coordinator, Limits
from trainshed.agent.link import Link
from trainshed.agent.wire import AgentConnection, AgentConnectionError, Message
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import AttemptFinished, EventWriter
from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause, RunState

pytestmark = [pytest.mark.foundation, pytest.mark.core]
SECRET = b"secret"


class Scene:
    """A coordinator of some nodes, and their ends of the line."""

    def __init__(self, run: RunDirectory, nodes: int, limits: Limits) -> None:
        self.run = run
        names = [f"worker-{i}" for i in range(nodes)]
        record = run.writer("coordinator-1")
        self.coordinator = Coordinator(record, 1, names, ("127.0.0.1", 0), SECRET, 1.0, limits)
        self.address: tuple[str, int] = self.coordinator._listener.getsockname()

    def join(self, node: int) -> Link:
        return Link.open(self.address, node, SECRET, 5.0, lambda: None)

    def stranger(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=5)

    def ended(self, seconds: float = 10.0) -> Failure | None:
        """How it ended, as it is recorded."""
        self.coordinator.join(seconds)
        assert not self.coordinator.is_alive(), "it did not end"
        (body,) = (e.body for e in self.run.events() if isinstance(e.body, AttemptFinished))
        assert body.attempt == 1 and body.outcome == self.coordinator.outcome
        assert (body.outcome.state is RunState.SUCCEEDED) == (body.outcome.failure is None)
        return body.outcome.failure


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    yield from opened(tmp_path, 2, Limits())


def opened(tmp_path: Path, nodes: int, limits: Limits) -> Iterator[Scene]:
    (run,) = Runs(tmp_path).create("job")
    made = Scene(run, nodes, limits)
    yield made
    if made.coordinator.is_alive():
        made.coordinator.request_stop(Failure(Cause.STOP, "the test is over"))
        made.coordinator._stop_by = 0.0


def hear(link: Link, kind: str) -> Message:
    """The next message of that kind; others are skipped."""
    while True:
        message = link.channel.receive_one(5)
        if message["type"] == kind:
            return message


def bring_through(links: list[Link]) -> None:
    for said, heard in (("ready", "go"), ("done", "finish")):
        for link in links:
            link.send({"type": said})
        for link in links:
            hear(link, heard)
    for link in links:
        link.send({"type": "closed"})


def test_nodes_go_through_together(scene: Scene) -> None:
    scene.coordinator.start()
    links = [scene.join(node) for node in range(2)]
    for node, link in enumerate(links):
        link.send({"type": "card", "card": {"user": str(node)}})
    assert [hear(link, "cards")["cards"] for link in links] == [[{"user": "0"}, {"user": "1"}]] * 2
    bring_through(links)
    assert scene.ended() is None


def test_a_connection_reset_before_it_is_accepted_is_no_matter(scene: Scene) -> None:
    for _ in range(5):
        with closing(scene.stranger()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    scene.coordinator.start()
    bring_through([scene.join(node) for node in range(2)])
    assert scene.ended() is None


def test_strangers_who_stay_silent_do_not_hold_nodes_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainshed.agent.pending_connections._HANDSHAKE", 1000.0)
    scene.coordinator.start()
    strangers = [scene.stranger() for _ in range(12)]
    for stranger in strangers[:6]:
        stranger.sendall(b"nobody\n")
    bring_through([scene.join(node) for node in range(2)])
    assert scene.ended() is None, "none of them was waited for"
    for stranger in strangers:
        stranger.close()


def test_strangers_are_sent_away_in_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainshed.agent.pending_connections._HANDSHAKE", 0.1)
    scene.coordinator.start()
    with closing(scene.stranger()) as stranger:
        assert len(stranger.recv(64)) == 33, "a nonce and its end"
        assert stranger.recv(64) == b"", "then nothing more"


def test_a_mistake_of_its_own_is_never_a_success(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.coordinator, "_accept", lambda: 1 / 0)
    with closing(scene.stranger()):
        scene.coordinator.start()
        failure = scene.ended()
    assert failure and failure.cause is Cause.ENGINE and "ZeroDivisionError" in failure.reason


def test_a_mistake_of_its_own_stops_the_nodes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.coordinator.start()
    link = scene.join(0)
    monkeypatch.setattr(scene.coordinator, "_is_all", lambda _: 1 / 0)
    assert "failed: ZeroDivisionError" in hear(link, "stop")["reason"]


def test_nodes_are_let_go_even_if_the_end_cannot_be_recorded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    scene.coordinator.start()
    link = scene.join(0)
    monkeypatch.setattr(EventWriter, "append", full)
    link.send({"type": "failed", "failure": Failure(Cause.RANK, "oh").to_json()})
    with pytest.raises(AgentConnectionError, match=r"closed|reset"):
        while link.channel.receive_one(5):
            pass


def test_a_node_may_say_goodbye_after_it_was_given_up(scene: Scene) -> None:
    scene.coordinator.start()
    links = [scene.join(node) for node in range(2)]
    until(lambda: len(scene.coordinator._peers) == 2, 5)
    scene.coordinator._part(1)
    links[1].send({"type": "closed"})
    scene.coordinator._handle(1, {"type": "closed"})
    links[0].send({"type": "closed"})
    assert scene.ended() is None


def test_a_node_that_comes_after_a_failure_is_told_to_stop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LATE", 1000.0)
    scene.coordinator.start()
    first = scene.join(0)
    first.send({"type": "failed", "failure": Failure(Cause.STAGING, "no data").to_json()})
    hear(first, "stop")
    first.send({"type": "closed"})
    until(lambda: not scene.coordinator._open, 5)
    late = scene.join(1)
    assert hear(late, "stop")["reason"] == "no data"
    late.send({"type": "closed"})
    failure = scene.ended()
    assert failure and failure.reason == "no data", "everybody was here: nobody else is waited for"


def test_after_a_failure_nobody_is_waited_for_long(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LATE", 0.5)
    scene.coordinator.start()
    link = scene.join(0)
    link.send({"type": "failed", "failure": Failure(Cause.STAGING, "no data").to_json()})
    link.send({"type": "closed"})
    failure = scene.ended(5)
    assert failure and failure.reason == "no data"


def test_when_the_driver_ends_the_run_nobody_is_waited_for_at_all(scene: Scene) -> None:
    scene.coordinator.start()
    link = scene.join(0)
    scene.coordinator.request_stop(Failure(Cause.STOP, "enough"))
    hear(link, "stop")
    link.send({"type": "closed"})
    failure = scene.ended(3)
    assert failure and failure.reason == "enough"


def test_a_silent_node_is_lost(tmp_path: Path) -> None:
    for scene in opened(tmp_path, 1, Limits(silence=0.5)):
        scene.coordinator.start()
        link = scene.join(0)
        failure = scene.ended(5)
        assert failure and "no message from it" in failure.reason
        link.channel.close()


def test_what_holds_the_coordinator_up_is_not_the_nodes_fault(tmp_path: Path) -> None:
    for scene in opened(tmp_path, 1, Limits(silence=20.0)):
        subject = scene.coordinator
        subject._peers[0] = module._Peer(AgentConnection(scene.stranger(), SECRET, server=True), seen=100.0)
        subject._open.add(0)
        subject._check_silence(now=130.0, passed=29.0)
        assert subject._failure is None and subject._peers[0].seen == 129.0
        subject._check_silence(now=150.0, passed=0.2)
        assert subject._failure and "no message" in subject._failure.reason


def test_too_few_open_files_are_named(scene: Scene) -> None:
    class Full:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        def __getattr__(self, name: str) -> object:
            return getattr(listener, name)

    listener = scene.coordinator._listener
    scene.coordinator._selector.unregister(listener)
    full = Full()
    scene.coordinator._selector.register(full, 1)  # type: ignore[type-var]
    scene.coordinator._listener = full  # type: ignore[assignment]
    with closing(scene.stranger()):
        scene.coordinator.start()
        failure = scene.ended(5)
    assert failure and failure.cause is Cause.ENGINE
    assert "each of 2 nodes: Too many open files" in failure.reason and "ulimit -n" in failure.reason
