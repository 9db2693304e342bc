"""A store that lists hostile names: nothing is written outside the destination, everything odd is named.

A real store refuses to hold most of these keys, so a small server plays one that does not.
"""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from storekit import QUICK, contents

from trainshed.store import Credentials, copy
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store]

KEYS = {
    "t/good": b"good",
    "t/../escape": b"bad",
    "t/a/../../escape": b"bad",
    "t//abs": b"bad",
    "t//etc/passwd": b"bad",
    "t/a//b": b"bad",
    "t/./dot": b"bad",
    "t/nul\0name": b"bad",
    "t/" + "k" * 300: b"bad",
    "t/" + "/".join(["d" * 100] * 9): b"long is fine",
    "t/ünï/文件": b"good",
    "t/new\nline": b"good",
    "t/%2e%2e/percent": b"good",
    "t/Case": b"1",
    "t/case": b"2",
    "t/x": b"",
    "t/x/y": b"child",
    "t/f": b"file first",
    "t/f/below": b"bad",
    "t/empty/": b"",
    "t/.trainshed-1.part": b"bad",
    "t/marker/": b"with content",
}


class Hostile(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        key = unquote(parts.path).partition("/bucket/")[2]
        if not key:
            prefix = parse_qs(parts.query).get("prefix", [""])[0]
            items = "".join(
                f"<Contents><Key>{quote(k)}</Key><Size>{len(v)}</Size><LastModified>2026-01-01T00:00:00Z"
                f"</LastModified><ETag>{hashlib.md5(v).hexdigest()}</ETag></Contents>"
                for k, v in KEYS.items()
                if k.startswith(prefix)
            )
            body = f"<ListBucketResult><EncodingType>url</EncodingType>{items}</ListBucketResult>".encode()
        else:
            body = KEYS[key]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hostile() -> Iterator[Credentials]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield make("k", "s", f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    server.server_close()


def test_hostile_keys_stay_inside_and_are_named(hostile: Credentials, tmp_path: Path) -> None:
    target = tmp_path / "deep/er/target"
    summary = copy("s3://bucket/t/", str(target), credentials=hostile, patience=QUICK)
    named = {problem.name for problem in summary.unrepresentable}
    assert named == {
        "../escape",
        "a/../../escape",
        "/abs",
        "/etc/passwd",
        "a//b",
        "./dot",
        "nul\0name",
        "k" * 300,
        "x",
        "f/below",
        ".trainshed-1.part",
        "marker",
    }
    assert all(problem.reason for problem in summary.unrepresentable)
    kept = {"good", "ünï/文件", "new\nline", "%2e%2e/percent", "Case", "case", "x/y", "f", "empty/"}
    assert set(contents(target)) == kept | {"/".join(["d" * 100] * 9)}
    assert {p.name for p in (tmp_path / "deep/er").iterdir()} == {"target"}
    assert (target / "f").read_bytes() == b"file first"
