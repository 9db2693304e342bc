"""Requests to a Trainshed server: standard library only, TLS verified, errors as the server tells them.

A server's own certificate is trusted by its file, or by its SHA-256 as `trainshed serve` prints it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from trainshed.errors import NotFoundError, RefusedError, TrainshedError, UsageError

_TIMEOUT = 60.0
_QUIET = 45.0
"""Seconds without a word on a stream, whose heartbeats come every 15, until the connection counts as dead."""
_ERRORS: dict[str, type[TrainshedError]] = {
    "not-found": NotFoundError, "refused": RefusedError, "usage": UsageError, "bad-job": UsageError,
    "denied": UsageError, "unauthenticated": UsageError, "missing-files": UsageError, "conflict": UsageError,
}  # fmt: skip


class ServerUnreachableError(TrainshedError):
    """The server did not answer: its runs go on meanwhile."""

    code = "server-unreachable"


class MissingUploadsError(UsageError):
    """The server lacks files of the code; `digests` says which."""

    code = "missing-files"

    def __init__(self, message: str, hint: str, digests: list[str]) -> None:
        super().__init__(message, hint)
        self.digests = digests


@dataclass(frozen=True)
class ServerConnection:
    """How a server is reached, and as whom."""

    url: str
    token: str = field(repr=False)
    certificate: str | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"invalid server URL: {self.url!r:.120}", "write https://HOST:PORT")

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of an answer (None of an empty one); the server's error as ours."""
        data = self.raw(method, path, body, query, headers)
        return json.loads(data) if data else None

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        try:
            with closing(self._open(_TIMEOUT)) as connection:
                response = self._send(connection, method, path, body, query, headers)
                data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        if response.status >= 400:
            raise _error(response.status, data)
        return data

    def events(
        self, path: str, query: Mapping[str, Any], last: str = ""
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Server-sent events of a stream as (id, name, data); ends when the connection does."""
        try:
            with closing(self._open(_QUIET)) as connection:
                more = {"Last-Event-ID": last} if last else {}
                response = self._send(connection, "GET", path, None, query, more)
                if response.status >= 400:
                    raise _error(response.status, response.read())
                fields: dict[str, str] = {}
                for raw in response:
                    line = raw.decode("utf-8", "replace").rstrip("\r\n")
                    if not line and "data" in fields:
                        yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])
                        fields = {}
                    elif line and not line.startswith(":"):
                        name, _, value = line.partition(": ")
                        fields[name] = value
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        context = ssl.create_default_context(cafile=self.certificate)
        if self.fingerprint:
            # Pinned: this very certificate, whoever signed it and whatever names it has.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
        connection.connect()
        if self.fingerprint:
            seen = connection.sock.getpeercert(binary_form=True) or b""
            wanted = self.fingerprint.lower().replace(":", "").removeprefix("sha256")
            if hashlib.sha256(seen).hexdigest() != wanted:
                connection.close()
                raise UsageError(
                    f"{self.url} has another certificate than the one that is trusted",
                    "compare the fingerprint that `trainshed serve` prints",
                )
        return connection

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> http.client.HTTPResponse:
        target = urlsplit(self.url).path.rstrip("/") + "/api/v1" + quote(path)
        chosen = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        if chosen:
            target += "?" + urlencode(chosen, doseq=True)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, **(headers or {})}
        connection.request(method, target, data, sent)
        return connection.getresponse()

    def _unreachable(self, error: Exception) -> TrainshedError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return UsageError(
                f"{self.url}: its certificate is not trusted: {error.verify_message}",
                "set TRAINSHED_CERTIFICATE to its file, or TRAINSHED_FINGERPRINT to its SHA-256",
            )
        return ServerUnreachableError(
            f"{self.url} did not answer: {error or type(error).__name__}", "check that the server runs"
        )


def _error(status: int, data: bytes) -> TrainshedError:
    try:
        found = json.loads(data)
        code, message, hint = str(found["code"]), str(found["message"]), str(found.get("hint", ""))
    except (ValueError, KeyError, TypeError):
        return TrainshedError(
            f"the server answered with status {status} and no reason",
            "is there a Trainshed server at the URL?",
        )
    if code == "missing-files":
        return MissingUploadsError(message, hint, [str(item) for item in found.get("missing", ())])
    return _ERRORS.get(code, TrainshedError)(message, hint, code=code)
