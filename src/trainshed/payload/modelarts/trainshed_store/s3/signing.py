"""AWS Signature Version 4, as S3, OBS and SeaweedFS check it. Pure but for the clock.

Payloads are not part of the signature (`UNSIGNED-PAYLOAD`): their integrity is kept by Content-MD5 and
ETags, which the engine needs anyway, so bytes are hashed once.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from ..credentials import Credentials

UNSIGNED = "UNSIGNED-PAYLOAD"


def encode_path(path: str) -> str:
    return quote(path, safe="/-_.~", errors="surrogateescape")


def encode_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(query.items()))


@lru_cache(maxsize=4)
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


class Signer:
    """Signs requests of one caller to one host; the day's key is derived once a day."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._day = ""
        self._key = b""

    def headers(
        self, method: str, host: str, path: str, query: str, extra: Mapping[str, str] | None = None
    ) -> str:
        """The header lines (with CRLF) to send; `path` and `query` are already encoded."""
        who = self._credentials
        stamp = _stamp(int(time.time()))
        day = stamp[:8]
        scope = f"{day}/{who.region}/s3/aws4_request"
        signed = {"host": host, "x-amz-content-sha256": UNSIGNED, "x-amz-date": stamp}
        if who.token:
            signed["x-amz-security-token"] = who.token
        if extra:
            signed.update(extra)
        names = sorted(signed)
        listed = ";".join(names)
        lines = "".join(f"{name}:{signed[name]}\n" for name in names)
        request = f"{method}\n{path}\n{query}\n{lines}\n{listed}\n{UNSIGNED}"
        digest = hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        signature = hmac.digest(self._daily_key(day), text.encode(), "sha256").hex()
        sent = "".join(f"{name}: {signed[name]}\r\n" for name in names)
        return (
            f"{sent}authorization: AWS4-HMAC-SHA256 Credential={who.access_key}/{scope}, "
            f"SignedHeaders={listed}, Signature={signature}\r\n"
        )

    def _daily_key(self, day: str) -> bytes:
        if day != self._day:
            key = ("AWS4" + self._credentials.secret_key).encode()
            for part in (day, self._credentials.region, "s3", "aws4_request"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            self._key, self._day = key, day
        return self._key
