"""Only holders of the run's secret are believed; nothing can be forged, replayed or turned around."""

from __future__ import annotations

import select
import socket
import threading

import pytest

from trainshed.agent.wire import AgentConnection, AgentConnectionError

pytestmark = [pytest.mark.foundation, pytest.mark.core]


def pair(
    server_secret: bytes = b"s", client_secret: bytes = b"s"
) -> tuple[AgentConnection, AgentConnection, socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    raw = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    listener.close()
    server, client = (
        AgentConnection(accepted, server_secret, True),
        AgentConnection(raw, client_secret, False),
    )
    server.greet()
    client.handshake(5)
    return server, client, raw


def test_messages_arrive_whole_and_in_order() -> None:
    server, client, _ = pair()
    for number in range(100):
        client.send({"type": "beat", "number": number, "text": "ü" * 100})
    assert [server.receive_one(5)["number"] for _ in range(100)] == list(range(100))
    server.send({"type": "go"})
    assert client.receive_one(5) == {"type": "go"}


def test_another_secret_is_not_believed() -> None:
    server, client, _ = pair(client_secret=b"other")
    client.send({"type": "hello"})
    with pytest.raises(AgentConnectionError, match="not signed"):
        server.receive_one(5)


def test_a_replayed_message_is_not_believed() -> None:
    server, client, raw = pair()
    body = b'{"type":"beat"}'
    line = client._sign(body, False, 0) + b" " + body + b"\n"
    raw.sendall(line)
    assert server.receive_one(5) == {"type": "beat"}
    raw.sendall(line)
    with pytest.raises(AgentConnectionError, match="not signed"):
        server.receive_one(5)


def test_a_message_turned_around_is_not_believed() -> None:
    server, client, raw = pair()
    body = b'{"type":"stop"}'
    raw.sendall(client._sign(body, True, 0) + b" " + body + b"\n")
    with pytest.raises(AgentConnectionError, match="not signed"):
        server.receive_one(5)


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100 + b"\n", b"x" * (2 << 20)])
def test_noise_ends_the_connection(noise: bytes) -> None:
    server, _, raw = pair()
    threading.Thread(target=lambda: _send(raw, noise), daemon=True).start()
    with pytest.raises(AgentConnectionError):
        server.receive_one(5)


def test_silence_ends_in_time() -> None:
    server, _, _ = pair()
    with pytest.raises(AgentConnectionError):
        server.receive_one(0.1)


def test_a_trickle_of_bytes_does_not_prolong_the_time() -> None:
    server, _, raw = pair()
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(0.05):
            _send(raw, b"x")

    ended: list[str] = []

    def receive() -> None:
        with pytest.raises(AgentConnectionError) as caught:
            server.receive_one(0.3)
        ended.append(str(caught.value))

    receiver = threading.Thread(target=receive, daemon=True)
    for thread in (threading.Thread(target=trickle, daemon=True), receiver):
        thread.start()
    receiver.join(30)
    over.set()
    assert ended in (["connection lost: no answer in time"], ["connection lost: timed out"])


def test_who_has_proved_nothing_may_not_send_much() -> None:
    server, _, raw = pair()
    _send(raw, b"x" * 10_000)
    with pytest.raises(AgentConnectionError, match="too long"):
        for _ in range(10):
            server.receive()


def test_what_follows_an_awaited_message_still_wakes_a_selector() -> None:
    server, client, _ = pair()
    client.send({"type": "hello"})
    server.receive_one(5)
    server.send({"type": "welcome"})
    server.send({"type": "stop"})
    assert client.receive_one(5) == {"type": "welcome"}
    assert select.select([client], [], [], 5)[0] == [client]
    assert client.receive() == [{"type": "stop"}]


def _send(raw: socket.socket, noise: bytes) -> None:
    try:
        raw.sendall(noise)
    except OSError:
        pass
