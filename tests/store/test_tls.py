"""HTTPS: a trusted certificate is accepted, another is refused at once with a remedy."""

import http.server
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_hostile_store import Hostile

from trainshed.store import StoreUnavailableError, read_bytes
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store]


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[str]:
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files],
        check=True,
        capture_output=True,
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_an_untrusted_certificate_is_refused_unless_told_otherwise(
    secure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUnavailableError, match="not trusted"):
        read_bytes("s3://bucket/t/good", credentials=make("k", "s", secure))
    careless = make("k", "s", secure, verify_tls=False)
    assert read_bytes("s3://bucket/t/good", credentials=careless) == b"good"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate"))
    assert read_bytes("s3://bucket/t/good", credentials=make("k", "s", secure)) == b"good"
