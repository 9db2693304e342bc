"""Huawei Cloud's request signature SDK-HMAC-SHA256: made by clients, verified by a server. Pure functions.

What is signed: method, path, query, the headers that SignedHeaders names, and the body's SHA-256. The key is the
secret key itself. A body may be left out of it (`X-Sdk-Content-Sha256: UNSIGNED-PAYLOAD`), as the official client does
for uploads that are not JSON; whoever verifies decides whether to accept that.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from trainshed.errors import TrainshedError

ALGORITHM = "SDK-HMAC-SHA256"
DATE = "x-sdk-date"
CONTENT = "x-sdk-content-sha256"
UNSIGNED = "UNSIGNED-PAYLOAD"
LONGEST_SKEW = timedelta(minutes=15)
"""How far a request's date may be from the server's clock, either way."""
_FORMAT = "%Y%m%dT%H%M%SZ"
_REQUIRED = ("host", DATE)
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Access=(?P<access>[^\s,;]{{1,128}}), ?SignedHeaders=(?P<headers>[a-z0-9;-]{{1,2048}}), ?"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)


class SignatureError(TrainshedError):
    """A request that is not signed, or not by who it says; the message never shows a key."""

    code = "signature"


@dataclass(frozen=True)
class HttpRequest:
    """A request as it goes over the wire."""

    method: str
    target: str
    """Path and query, percent-encoded."""
    headers: Mapping[str, str]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers.items() if key.lower() == name), None)


def timestamp(moment: datetime) -> str:
    """The value of X-Sdk-Date."""
    return moment.astimezone(UTC).strftime(_FORMAT)


def sign(request: HttpRequest, access_key: str, secret_key: str) -> str:
    """The Authorization header for a request that has Host and X-Sdk-Date; it covers all its headers."""
    for name in _REQUIRED:
        if request.header(name) is None:
            raise SignatureError(f"a request to sign has no header {name}", "set it first")
    signed = sorted(name.lower() for name in request.headers if "_" not in name)
    signature = _signature(request, signed, secret_key)
    return f"{ALGORITHM} Access={access_key}, SignedHeaders={';'.join(signed)}, Signature={signature}"


def verify(
    request: HttpRequest,
    secret_of: Callable[[str], str | None],
    now: datetime,
    *,
    accept_unsigned_body: bool = False,
) -> str:
    """The access key that signed the request; raises SignatureError if none did, in the same words for each reason
    that could tell a stranger which access keys exist."""
    match = _AUTHORIZATION.fullmatch(request.header("authorization") or "")
    if match is None:
        raise SignatureError(f"the header Authorization is no signature {ALGORITHM}", "sign the request")
    signed = match["headers"].split(";")
    for name in (*_REQUIRED, *([CONTENT] if request.header(CONTENT) is not None else [])):
        if name not in signed:
            raise SignatureError(f"the signature does not cover the header {name}", f"sign {name} as well")
    _check_date(request.header(DATE) or "", now)
    _check_body(request, accept_unsigned_body)
    secret = secret_of(match["access"])
    # An unknown access key takes the same time and gets the same answer as a wrong signature.
    expected = _signature(request, signed, secret or "\0")
    if not hmac.compare_digest(expected, match["signature"]) or secret is None:
        raise SignatureError(
            "the access key is not known, or the signature is not its own", "check access key and secret key"
        )
    return match["access"]


def canonical_request(request: HttpRequest, signed: list[str]) -> str:
    """The text that stands for a request in its signature."""
    path, _, query = request.target.partition("?")
    values = {name.lower(): str(value).strip() for name, value in request.headers.items()}
    lines = "".join(f"{name}:{values.get(name, '')}\n" for name in signed)
    parts = (request.method.upper(), _path(path), _query(query), lines, ";".join(signed), _payload(request))
    return "\n".join(parts)


def _signature(request: HttpRequest, signed: list[str], secret_key: str) -> str:
    digest = hashlib.sha256(canonical_request(request, signed).encode()).hexdigest()
    text = f"{ALGORITHM}\n{request.header(DATE)}\n{digest}"
    return hmac.new(secret_key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _path(path: str) -> str:
    quoted = "/".join(quote(part, safe="~") for part in unquote(path).split("/"))
    return quoted if quoted.endswith("/") else f"{quoted}/"


def _query(query: str) -> str:
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    decoded = sorted((unquote(name), unquote(value)) for name, value in pairs)
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in decoded)


def _payload(request: HttpRequest) -> str:
    stated = request.header(CONTENT) if request.body else None
    return stated or hashlib.sha256(request.body).hexdigest()


def _check_body(request: HttpRequest, accept_unsigned: bool) -> None:
    stated = request.header(CONTENT)
    if stated is None or stated == hashlib.sha256(request.body).hexdigest():
        return
    if stated == UNSIGNED and (accept_unsigned or not request.body):
        return
    raise SignatureError(f"{CONTENT} is not the SHA-256 of the body", "sign the body that is sent")


def _check_date(text: str, now: datetime) -> None:
    try:
        moment = datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise SignatureError(f"{DATE} is {text[:40]!r}", "write it like 20260131T235959Z, in UTC") from error
    if abs(moment - now) > LONGEST_SKEW:
        raise SignatureError(
            f"{DATE} is {text}, more than {LONGEST_SKEW} from this server's clock ({timestamp(now)})",
            "set the clock of the client",
        )
