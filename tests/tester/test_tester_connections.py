"""The Tester's connections: idle ones, and requests that two readers would read differently."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from served import Served, until

from trainshed.tester import server

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def connected(served: Served, stack: ExitStack, sent: bytes = b"") -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 20))
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_connections_without_a_token_do_not_shut_the_door(
    served: Served, stack: ExitStack, sent: bytes
) -> None:
    token = served.add("t1")
    for _ in range(3 * server._CONNECTIONS):
        connected(served, stack, sent)
    for _ in range(5):
        assert served.ask("GET", "/api/v1/tests/t1", token=token)[0] == 200
    assert len(served.server.visitors) <= server._CONNECTIONS


def test_who_has_shown_a_token_keeps_the_place(served: Served, stack: ExitStack) -> None:
    token = served.add("t1")
    sender = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    stack.callback(sender.close)

    def ask() -> int:
        sender.request("GET", "/api/v1/tests/t1", headers={"Authorization": f"Bearer {token}"})
        answer = sender.getresponse()
        answer.read()
        return answer.status

    assert ask() == 200
    place = sender.sock
    for _ in range(2 * server._CONNECTIONS):
        connected(served, stack)
    assert ask() == 200 and sender.sock is place


def test_a_head_that_never_ends_is_ended(
    served: Served, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD", 0.2)
    slow = connected(served, stack, b"GET / HTTP/1.1\r\n")
    until(lambda: served.server.visitors == {})
    assert slow.recv(1000) == b""


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\nContent-Length: 50\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n",
        b"Content-Length: 2, 2\r\n",
        b"Content-Length: +2\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    ],
)
@pytest.mark.parametrize("method", [b"PUT", b"POST"])
def test_a_body_of_two_lengths_is_refused_and_nothing_after_it_is_read(
    served: Served, stack: ExitStack, method: bytes, headers: bytes
) -> None:
    token, upload = served.add("t1").encode(), b"0" * 64
    end = b"/commit" if method == b"POST" else b""
    smuggled = b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
    request = (
        b"%s /api/v1/tests/t1/uploads/%s%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n{}%s"
    )
    connection = connected(served, stack, request % (method, upload, end, token, headers, smuggled))
    answer = b""
    while part := connection.recv(65536):
        answer += part
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 411"))
    assert b'"length"' in answer


def test_two_tokens_are_refused(served: Served, stack: ExitStack) -> None:
    token = served.add("t1").encode()
    head = b"GET /api/v1/tests/t1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nAuthorization: Bearer %s\r\n\r\n"
    assert connected(served, stack, head % token).recv(65536).startswith(b"HTTP/1.1 400")
