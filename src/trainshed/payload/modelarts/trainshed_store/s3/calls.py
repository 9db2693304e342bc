"""Requests to one S3-compatible store: signed, retried with an end, errors put in words.

It knows nothing of what is asked for. Keys are passed exactly as they are stored.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..credentials import Credentials
from ..errors import (
    AccessDeniedError,
    BucketNotFoundError,
    ChecksumError,
    DiskFullError,
    ObjectNotFoundError,
    PreconditionError,
    StoreError,
    StoreUnavailableError,
)
from . import xml
from .proxy import is_loopback, proxy_for
from .signing import Signer, encode_path, encode_query
from .wire import Address, Answer, Connection, ProxyRefusedError, Sink, WireError

RETRYABLE_STATUS = {429, 500, 502, 503, 504}
RETRYABLE_CODES = {"BadDigest", "RequestTimeout", "SlowDown", "IncompleteBody", "InternalError"}
DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed"}


@dataclass(frozen=True)
class Patience:
    """How long the client tries. The defaults outlast a restart of the embedded store."""

    attempts: int = 9
    first_pause: float = 0.1
    longest_pause: float = 5.0
    connect_timeout: float = 10.0
    idle_timeout: float = 60.0


class Caller:
    """Sends requests. Safe to share between threads; each request borrows a connection from a pool."""

    def __init__(self, credentials: Credentials, patience: Patience | None = None) -> None:
        parts = urlsplit(credentials.endpoint)
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or (443 if secure else 80)
        self.credentials = credentials
        self.patience = patience or Patience()
        self.retries = 0
        self.on_pressure: Callable[[], None] = lambda: None
        self._netloc = f"[{host}]" if ":" in host else host
        if port != (443 if secure else 80):
            self._netloc += f":{port}"
        self._address = Address(host, port, secure, credentials.verify_tls)
        self.is_here = is_loopback(host)
        """Whether the store shares this machine, and so its cores and its clock."""
        self._signer = Signer(credentials)
        self._addresses: dict[str, Address] = {}
        self._pools: dict[str, list[Connection]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            for pool in self._pools.values():
                for connection in pool:
                    connection.close()
            self._pools.clear()

    def request(
        self,
        method: str,
        bucket: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
        extra: Mapping[str, str] | None = None,
        into: memoryview | Sink | None = None,
        check: Callable[[Answer], None] | None = None,
    ) -> Answer:
        """Send one request until it succeeds, is refused for good, or patience ends."""
        host, path = self._place(bucket, key)
        encoded = encode_query(query) if query else ""
        address = self._address_of(host)
        target = f"{path}?{encoded}" if encoded else path
        through = ""
        if address.proxy and not address.secure:
            target, through = f"http://{host}{target}", address.proxy.header
        pause = self.patience.first_pause
        for attempt in range(self.patience.attempts):
            if attempt:
                self.retries += 1
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, self.patience.longest_pause)
            lines = self._signer.headers(method, host, path, encoded, extra)
            head = f"{method} {target} HTTP/1.1\r\n{lines}{through}content-length: {len(body)}\r\n\r\n"
            try:
                answer = self._exchange(address, method, head.encode("utf-8"), body, into, check)
                if answer.status < 300:
                    return answer
            except ChecksumError as error:
                last: Exception = error
                continue
            except OSError as error:  # refused, reset, timed out, cut short
                if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
                    raise StoreUnavailableError(
                        f"no such host: {(address.proxy or address).host} "
                        f"({'the proxy' if address.proxy else 'the endpoint'} of {self.credentials.source})",
                        "correct the variables http_proxy and https_proxy"
                        if address.proxy
                        else "correct the endpoint",
                    ) from error
                if isinstance(error, ProxyRefusedError):
                    raise StoreUnavailableError(
                        str(error), "check https_proxy, or name the host in no_proxy"
                    ) from error
                if type(error).__name__ == "SSLCertVerificationError":  # ssl is loaded only when used
                    raise StoreUnavailableError(
                        f"{self.credentials.endpoint} shows a certificate that is not trusted: {error}",
                        "add its authority to this machine (SSL_CERT_FILE), or set verify_tls: false in the profile",
                    ) from error
                last = error
                self.on_pressure()
                continue
            refusal = self.refusal(answer, bucket, key)
            if answer.status in RETRYABLE_STATUS or refusal.store_code in RETRYABLE_CODES:
                last = refusal
                if answer.status in (429, 503):
                    self.on_pressure()
                continue
            raise refusal
        raise self._given_up(last, bucket, key)

    def _exchange(
        self,
        address: Address,
        method: str,
        head: bytes,
        body: bytes | bytearray | memoryview,
        into: memoryview | Sink | None,
        check: Callable[[Answer], None] | None,
    ) -> Answer:
        with self._lock:
            pool = self._pools.setdefault(address.host, [])
            connection = pool.pop() if pool else None
        patience = self.patience
        while True:
            fresh = connection is None
            if connection is None:
                connection = Connection(address, patience.connect_timeout, patience.idle_timeout)
            try:
                connection.send(head, body)
                answer = connection.receive(method, into)
                if check and answer.status < 300:
                    check(answer)
                break
            except (ConnectionError, WireError):
                connection.close()
                if fresh:
                    raise
                connection = None  # the store closed an idle connection: no failure, try a new one
            except BaseException:
                connection.close()
                raise
        # After 400, 5xx or a wrong checksum the next try takes another way: this one may have spoilt it.
        if connection.reusable and answer.status != 400 and answer.status < 500:
            with self._lock:
                pool.append(connection)
        else:
            connection.close()
        return answer

    def _address_of(self, host: str) -> Address:
        """Where to connect for a value of the Host header, and through which proxy."""
        found = self._addresses.get(host)
        if found is None:
            base = self._address
            name = base.host if self.credentials.path_style else host.rsplit(":", 1)[0]
            proxy = proxy_for(name, base.port, base.secure, os.environ)
            found = Address(name, base.port, base.secure, base.verify, proxy)
            self._addresses[host] = found
        return found

    def _place(self, bucket: str, key: str) -> tuple[str, str]:
        if not bucket:
            return self._netloc, "/"
        if self.credentials.path_style:
            return self._netloc, encode_path(f"/{bucket}/{key}" if key else f"/{bucket}")
        return f"{bucket}.{self._netloc}", encode_path(f"/{key}")

    def refusal(self, answer: Answer, bucket: str, key: str) -> StoreError | ObjectNotFoundError:
        """The error for an answer: our own code, the store's in the message and in `store_code`."""
        code = next(iter(xml.texts(answer.body, "Code")), "")
        error = self._error(answer, code, bucket, key)
        error.store_code = code
        return error

    def _error(self, answer: Answer, code: str, bucket: str, key: str) -> StoreError | ObjectNotFoundError:
        said = next(iter(xml.texts(answer.body, "Message")), "")
        what = f"{bucket}/{key}" if key else bucket
        if answer.status == 404 and (code == "NoSuchBucket" or not key):
            return BucketNotFoundError(
                f"no bucket {bucket!r} at {self.credentials.endpoint}",
                f"check its name, or make it: trainshed store bucket add {bucket}",
            )
        if answer.status == 404:
            return ObjectNotFoundError(
                f"no object {what!r} at {self.credentials.endpoint}{f': {code}' if code else ''}"
            )
        if answer.status in (401, 403) or code in DENIED:
            return AccessDeniedError(
                f"{self.credentials.endpoint} refused {what}: {code or answer.status} {said}".rstrip(),
                f"keys come from {self.credentials.source}; check them and the rights on the bucket",
            )
        if answer.status == 412:
            return PreconditionError(f"{what} changed while it was read", "copy it again")
        if answer.status == 507 or "no space left" in said.lower() or "no writable volumes" in said.lower():
            return DiskFullError(
                f"the store at {self.credentials.endpoint} has no room: {said}", "free space there"
            )
        return StoreError(
            f"{self.credentials.endpoint} answered {answer.status} {code} for {what}: {said}".rstrip(": ")
        )

    def _given_up(self, last: Exception, bucket: str, key: str) -> Exception:
        what = f"{bucket}/{key}" if key else bucket
        if isinstance(last, ChecksumError):
            return ChecksumError(
                f"{last.message}, {self.patience.attempts} times in a row", "check network and store"
            )
        reason = last.message if isinstance(last, StoreError) else _words(last)
        return StoreUnavailableError(
            f"store {self.credentials.endpoint} failed {self.patience.attempts} times for {what}: {reason}",
            "check that it runs and is reachable; the same command again resumes",
        )


def _words(error: Exception) -> str:
    if isinstance(error, socket.timeout):
        return "timed out"
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return "connection refused"
    return str(error) or type(error).__name__
