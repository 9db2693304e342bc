"""The Tester as an HTTP server: routes, limits and the background check. The protocol is in docs/tester.md.

Every request is bounded in size and time, every connection is counted, and
whatever was acknowledged survives a kill at any moment.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import re
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainshed.errors import NotFoundError, RefusedError, UsageError
from trainshed.runs.chain import MOST_RECORDS
from trainshed.runs.chain import VERSION as CHAIN_VERSION
from trainshed.tester import export, pages
from trainshed.tester.inbox import part_digest
from trainshed.tester.model import (
    HEAD_BYTES,
    MANIFEST_BYTES,
    PART_BYTES,
    PROTOCOL,
    Refusal,
    is_test_id,
    is_upload,
    same,
    token_hash,
)
from trainshed.tester.service import TesterService

_log = logging.getLogger(__name__)
_CONNECTIONS = 64
_IDLE = 30.0
_HEAD = 15.0
"""The longest that the head of a request may take without a valid token."""
_REQUEST = 180.0
"""The longest one request may take, from its head to the answer."""
_LOST = (ConnectionError, TimeoutError, ssl.SSLError)
_LENGTH = re.compile(r"^[0-9]{1,18}$")
_RANGE = re.compile(r"^bytes (\d{1,18})-(\d{1,18})/(\d{1,18})$")
_NONCES = re.compile(r"^/api/v1/tests/([^/]+)/nonces(?:/([0-9a-f]{32})/heads)?$")
_REPORT = re.compile(r"^/results/([^/]+)/([0-9a-f]{64})/report$")
_API = re.compile(r"^/api/v1/tests/([^/]+)(?:/uploads/([^/]+)(?:/(commit|files/(.+)))?)?$")


@dataclass
class Visitor:
    """One connection: when it may be ended, and whether it has shown the token of a test."""

    connection: socket.socket
    opened: float
    deadline: float
    trusted: bool = False


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "trainshed-tester", ""
    timeout = _IDLE
    # Head and body of an answer leave together and at once: a small file costs no 40 ms.
    disable_nagle_algorithm, wbufsize = True, 1 << 16
    server: HttpServer

    def handle_one_request(self) -> None:
        visitor = self._visitor()
        visitor.deadline = time.monotonic() + (_IDLE if visitor.trusted else _HEAD)
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _visitor(self) -> Visitor:
        return self.server.visitors[id(self.connection)]

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_HEAD(self) -> None:
        self._serve(self._get)

    def do_PUT(self) -> None:
        self._serve(self._put)

    def do_PATCH(self) -> None:
        self._serve(self._patch)

    def do_POST(self) -> None:
        self._serve(self._post)

    def _serve(self, answer: Callable[[], None]) -> None:
        self._visitor().deadline = time.monotonic() + _REQUEST
        lengths = self.headers.get_all("Content-Length", ["0"])
        self._read = lengths == ["0"] and "Transfer-Encoding" not in self.headers
        try:
            if len(lengths) > 1 or len(self.headers.get_all("Authorization", [])) > 1:
                # Whoever is in between may have believed the other one.
                self.close_connection = True
                raise Refusal(400, "length", "Content-Length or Authorization was sent more than once")
            answer()
        except Refusal as refusal:
            self._json(refusal.status, {"error": refusal.code, "message": refusal.message, **refusal.details})
        except NotFoundError as error:
            self._json(404, {"error": error.code, "message": error.message})
        except _LOST:
            raise
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Answer unexpected errors; the connection ends, the server continues."""
        self.close_connection = True
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            status, code, text = (
                507,
                "disk-full",
                "the Tester's disk is full; results already received are kept",
            )
        else:
            status, code, text = 500, "internal", "the Tester failed at this request; its log says where"
            self.server.tell_error(self.address_string(), error)
        self._json(status, {"error": code, "message": text})

    def _get(self) -> None:
        path = urlsplit(self.path).path
        if path == "/api/v1/health":
            self._json(200, {"protocol": PROTOCOL, "part_bytes": PART_BYTES, "chain": CHAIN_VERSION})
        elif match := _API.match(path):
            test, upload = self._allowed(match[1]), match[2]
            if upload is None:
                self._json(200, self.server.tester.ledger.test(test).public())
            elif match[3] is None:
                self._json(200, self.server.tester.state(test, self._upload(upload)))
            else:
                raise Refusal(405, "method", "this address does not accept GET")
        elif path.startswith("/export/"):
            self._export(path.removeprefix("/export/"))
        elif match := _REPORT.match(path):
            self._report(match[1], match[2])
        else:
            tester, query = self.server.tester, urlsplit(self.path).query
            page = pages.page(tester.ledger, unquote(path), query, tester.inbox.has_report)
            self._send(page.status, page.kind, page.body.encode("utf-8", "replace"))

    def _report(self, test: str, upload: str) -> None:
        """The report that this Tester made of a result; it contains its style and nothing else."""
        known = is_test_id(test) and self.server.tester.ledger.result(test, upload) is not None
        body = self.server.tester.inbox.report(test, upload) if known else None
        if body is None:
            raise Refusal(404, "no-such-address", "no such report")
        self._send(200, "text/html; charset=utf-8", body, "'unsafe-inline'")

    def _put(self) -> None:
        match = _API.match(urlsplit(self.path).path)
        if not match or not match[2] or match[3]:
            raise Refusal(404, "no-such-address", "no such resource for PUT")
        test, upload = self._allowed(match[1]), self._upload(match[2])
        manifest = self._body(MANIFEST_BYTES)
        signature = self.headers.get("X-Trainshed-Signature", "")
        self._json(200, self.server.tester.begin(test, upload, manifest, signature, self._token()))

    def _patch(self) -> None:
        match = _API.match(urlsplit(self.path).path)
        if not match or not match[4]:
            raise Refusal(404, "no-such-address", "no such resource for PATCH")
        test, upload = self._allowed(match[1]), self._upload(match[2])
        span = _RANGE.match(self.headers.get("Content-Range", ""))
        if not span:
            raise Refusal(400, "range", "Content-Range: bytes FIRST-LAST/TOTAL is missing or malformed")
        part = self._body(PART_BYTES)
        first, last, total = (int(number) for number in span.groups())
        if not part or last - first + 1 != len(part):
            raise Refusal(400, "range", f"Content-Range names {last - first + 1} bytes, {len(part)} came")
        if not same(part_digest(part), self.headers.get("X-Trainshed-SHA256", "")):
            raise Refusal(422, "part-damaged", "the part's SHA-256 is not the one stated; send it again")
        self._json(200, self.server.tester.take(test, upload, unquote(match[4]), first, total, part))

    def _post(self) -> None:
        path = urlsplit(self.path).path
        if found := _NONCES.match(path):
            self._witness(self._allowed(found[1]), found[2])
            return
        match = _API.match(path)
        if not match or match[3] != "commit":
            raise Refusal(404, "no-such-address", "no such resource for POST")
        test, upload = self._allowed(match[1]), self._upload(match[2])
        self._body(1024)
        self._json(200, self.server.tester.commit(test, upload))

    def _witness(self, test: str, nonce: str | None) -> None:
        """Give out a nonce, or note a head of the run that has it."""
        book, request = self.server.tester.book, self._object(self._body(HEAD_BYTES))
        if request.get("chain") != CHAIN_VERSION:
            text = f"the Tester notes chains of format {CHAIN_VERSION}, this one is of {request.get('chain')!s:.20}"
            raise Refusal(400, "chain-format", f"{text}: participant and Tester need the same release")
        if nonce is None:
            self._json(200, {"nonce": book.issue(test)})
            return
        seq, digest, closed = (request.get(name) for name in ("seq", "digest", "closed"))
        if type(seq) is not int or not 0 <= seq < MOST_RECORDS or not is_upload(str(digest)):
            raise Refusal(400, "head", "a head is {chain, seq, digest, closed}")
        self._json(200, {"received": book.take(test, nonce, seq, str(digest), closed is True)})

    def _object(self, body: bytes) -> dict[str, Any]:
        try:
            return dict(json.loads(body))
        except (ValueError, TypeError, RecursionError) as error:
            raise Refusal(400, "head", "the body is not a JSON object") from error

    def _export(self, name: str) -> None:
        ledger = self.server.tester.ledger
        makers = {
            "results.json": (export.results_json, "application/json"),
            "results.csv": (export.results_csv, "text/csv"),
            "ranking.json": (export.ranking_json, "application/json"),
            "ranking.csv": (export.ranking_csv, "text/csv"),
        }
        if name not in makers:
            raise Refusal(404, "no-such-address", f"exports are {', '.join(makers)}")
        make, kind = makers[name]
        text = make(ledger.tests(), ledger.results())
        self._send(200, f"{kind}; charset=utf-8", text.encode("utf-8", "replace"))

    def _token(self) -> str:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if kind == "Bearer" else ""

    def _allowed(self, test: str) -> str:
        """The test, if the request has its token. An unknown test and a wrong token look the same."""
        token, known = self._token(), self.server.tester.ledger.token_hash(test) if is_test_id(test) else ""
        if not token:
            raise Refusal(401, "no-token", "send the test's token as `Authorization: Bearer TOKEN`")
        if not known or not same(token_hash(token), known):
            raise Refusal(403, "token", "the token does not belong to this test")
        self._visitor().trusted = True
        return test

    def _upload(self, text: str) -> str:
        if not is_upload(text):
            raise Refusal(400, "upload-name", "an upload is named by the SHA-256 of its manifest")
        return text

    def _body(self, limit: int) -> bytes:
        if "Transfer-Encoding" in self.headers:
            raise Refusal(411, "length", "send Content-Length, not a transfer encoding")
        length = self.headers.get("Content-Length", "0")
        if not _LENGTH.match(length):
            raise Refusal(400, "length", "Content-Length is not a number")
        if int(length) > limit:
            raise Refusal(413, "too-large", f"{length} bytes sent, at most {limit} are accepted")
        data = self.rfile.read(int(length))
        if len(data) != int(length):
            self.close_connection = True
            raise Refusal(400, "cut-short", "the connection ended inside the request")
        self._read = True
        return data

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(value).encode() + b"\n")

    def _send(self, status: int, kind: str, body: bytes, style: str = "'self'") -> None:
        if not self._read:
            self.close_connection = True  # what was not read of the request must not be taken for the next
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header(
            "Content-Security-Policy",
            f"default-src 'none'; style-src {style}; frame-ancestors 'none'; form-action 'self'",
        )
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        if self.server.tell:
            line = format % args
            self.server.tell(f"{self.address_string()} {line.encode('ascii', 'backslashreplace').decode()}")


class HttpServer(ThreadingHTTPServer):
    """The listening socket, with at most 64 connections and an end for every request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        tester: TesterService,
        address: tuple[str, int],
        tell: Callable[[str], None] | None = None,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self.tester, self.tell = tester, tell
        self.visitors: dict[int, Visitor] = {}
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        self._tls = None
        if tls:
            self._tls = _tls(*tls)
        try:
            super().__init__(address, Handler)
        except OSError as error:
            text = f"cannot listen on {address[0]}:{address[1]}: {error.strerror}"
            raise RefusedError(text, "choose another --host or --port") from error

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        connection.settimeout(_IDLE)
        if self._tls:
            # The handshake happens at the first read, in the connection's own thread.
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self._make_room()
            if not self._slots.acquire(timeout=1.0):
                self.shutdown_request(request)
                return
        now = time.monotonic()
        self.visitors[id(request)] = Visitor(request, now, now + _HEAD)
        super().process_request(request, client_address)

    def _make_room(self) -> None:
        """End the oldest connection that has not shown a token: who only holds places loses one."""
        strangers = [visitor for visitor in list(self.visitors.values()) if not visitor.trusted]
        if strangers:
            _end(min(strangers, key=lambda visitor: visitor.opened))

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.visitors.pop(id(request), None)
            self._slots.release()

    def service_actions(self) -> None:
        """Called twice a second: end requests that have taken too long."""
        now = time.monotonic()
        for visitor in list(self.visitors.values()):
            if now > visitor.deadline:
                _end(visitor)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, _LOST):
            self.tell_error(client_address[0], error)

    def tell_error(self, peer: str, error: BaseException) -> None:
        """Log where an error arose, without its text: that may hold what a participant sent."""
        places = "".join(traceback.format_tb(error.__traceback__)[-4:])
        text = f"{peer} error: {type(error).__name__}\n{places}"
        self.tell(text) if self.tell else _log.error(text)


def _end(visitor: Visitor) -> None:
    with contextlib.suppress(OSError):
        visitor.connection.shutdown(socket.SHUT_RDWR)


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        text = f"certificate {certificate} with key {key} cannot be used: {error.strerror}"
        raise UsageError(text, "give PEM files that belong together") from error
    return context
