"""HTTP proxies from the environment: which host goes through which, and what goes wrong on the way."""

import socket
import threading
from collections.abc import Iterator

import pytest

from trainshed.errors import UsageError
from trainshed.payload.modelarts.trainshed_store.s3.proxy import HttpProxy, proxy_for
from trainshed.store import StoreUnavailableError, read_bytes
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store, pytest.mark.core]

BOTH = {"http_proxy": "http://plain:3128", "https_proxy": "secure:3129"}


@pytest.mark.parametrize(
    ("host", "port", "secure", "environ", "proxy"),
    [
        ("obs.example", 80, False, BOTH, "plain"),
        ("obs.example", 443, True, BOTH, "secure"),
        ("obs.example", 443, True, {"HTTPS_PROXY": "http://upper"}, "upper"),
        ("obs.example", 443, True, {"ALL_PROXY": "http://any"}, "any"),
        ("obs.example", 80, False, {"HTTP_PROXY": "http://a-header", "REQUEST_METHOD": "GET"}, ""),
        ("obs.example", 80, False, {}, ""),
        ("127.0.0.1", 80, False, BOTH, ""),
        ("127.9.9.9", 80, False, BOTH, ""),
        ("localhost", 80, False, BOTH, ""),
        ("team.localhost", 80, False, BOTH, ""),
        ("::1", 80, False, BOTH, ""),
        ("obs.example", 80, False, {**BOTH, "no_proxy": "*"}, ""),
        ("team.obs.example", 80, False, {**BOTH, "no_proxy": "other, obs.example"}, ""),
        ("team.obs.example", 80, False, {**BOTH, "NO_PROXY": ".example"}, ""),
        ("notexample", 80, False, {**BOTH, "no_proxy": "example"}, "plain"),
        ("obs.example", 80, False, {**BOTH, "no_proxy": "obs.example:8333"}, "plain"),
        ("obs.example", 8333, False, {**BOTH, "no_proxy": "obs.example:8333"}, ""),
        ("10.1.2.3", 80, False, {**BOTH, "no_proxy": "10.0.0.0/8"}, ""),
        ("10.1.2.3", 80, False, {**BOTH, "no_proxy": "11.0.0.0/8,,"}, "plain"),
        ("10.1.2.3", 80, False, {**BOTH, "no_proxy": "10.1.2.3"}, ""),
    ],
)
def test_a_host_goes_through(host: str, port: int, secure: bool, environ: dict[str, str], proxy: str) -> None:
    found = proxy_for(host, port, secure, environ)
    assert (found.host if found else "") == proxy


def test_a_proxy_may_ask_for_a_password_which_no_message_shows() -> None:
    found = proxy_for("obs.example", 80, False, {"http_proxy": "http://me:p%40ss@gate:3128"})
    assert found == HttpProxy("gate", 3128, "Basic bWU6cEBzcw==")
    assert "bWU6cEBzcw" not in repr(found)
    for wrong in ("socks5://me:p%40ss@gate:1", "http://me:p%40ss@gate:port", "http://"):
        with pytest.raises(UsageError, match="http_proxy") as caught:
            proxy_for("obs.example", 80, False, {"http_proxy": wrong})
        assert "p%40ss" not in str(caught.value)


@pytest.fixture
def closed_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """A proxy that lets nobody through."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                asked.append(client.recv(4096))
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    yield asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_proxy_that_refuses_is_named_at_once(closed_gate: list[bytes]) -> None:
    with pytest.raises(
        StoreUnavailableError, match=r"proxy 127.*refused a connection to store\.example:443: .*407"
    ):
        read_bytes("s3://bucket/x", credentials=make("k", "s", "https://store.example", path_style=True))
    assert len(closed_gate) == 1 and closed_gate[0].startswith(b"CONNECT store.example:443 HTTP/1.1\r\n")
