"""Logs in which a job's secrets do not appear, even when its script prints them.

A job without secrets writes to its log itself. With secrets its output passes
through here, where each value is replaced by `***`: as it is, line by line, and
as JSON, Python, URLs, HTML and Base64 write it. A script that changes a value in
another way (encrypts it, prints it letter by letter) can still show it.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""Shorter values would blot out ordinary words: engines refuse them as secrets."""

_BASE64_FROM = 6
"""Encoded, a shorter value may be part of anything."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log being written. `stream` is closed once the process has been given it."""

    path: Path
    stream: BinaryIO
    copier: threading.Thread | None = None

    def settle(self) -> None:
        """After the process has ended: wait, briefly, until all it wrote is in the file."""
        if self.copier:
            self.copier.join(1.0)


def open_log(path: Path, secrets: Iterable[str]) -> Log:
    """Begin (or go on with) the log at `path`."""
    hidden = forms(secrets)
    if not hidden:
        return Log(path, path.open("ab"))
    read, write = os.pipe()
    copier = threading.Thread(target=_copy, args=(read, path, hidden), daemon=True)
    copier.start()
    return Log(path, os.fdopen(write, "wb"), copier)


def forms(secrets: Iterable[str]) -> list[bytes]:
    """Every way in which the secrets are likely to be written, the longest first."""
    found: set[bytes] = set()
    for secret in secrets:
        lines = [line.strip() for line in secret.splitlines()] if "\n" in secret.strip() else []
        for value in (secret, secret.strip(), *lines):
            data = value.encode("utf-8", "surrogateescape")
            written = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
            written |= {
                repr(value)[1:-1],
                html.escape(value),
                quote(data, safe=""),
                quote_plus(data),
                quote(data),
            }
            found |= {text.encode("utf-8", "surrogateescape") for text in written}
            found |= {quote(data, safe="").lower().encode()}
            if len(data) >= _BASE64_FROM:
                found |= {base64.b64encode(data).rstrip(b"="), base64.urlsafe_b64encode(data).rstrip(b"=")}
    return sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True)


def _copy(read: int, path: Path, hidden: list[bytes]) -> None:
    held = b""
    with os.fdopen(read, "rb", buffering=0) as source, path.open("ab", buffering=0) as log:
        while chunk := source.read(1 << 16):
            ready, held = _divide(held + chunk, hidden)
            log.write(mask(ready, hidden))
        log.write(mask(held, hidden))


def mask(data: bytes, hidden: list[bytes]) -> bytes:
    return _any_of(hidden).sub(b"***", data)


def _any_of(hidden: list[bytes]) -> re.Pattern[bytes]:
    """The longest first: of two secrets that begin alike the longer one counts."""
    return re.compile(b"|".join(map(re.escape, hidden)))


def _divide(data: bytes, hidden: list[bytes]) -> tuple[bytes, bytes]:
    """What can be written once it is masked, and the end that may still become a secret, or a longer one."""
    first = max(0, len(data) - max(map(len, hidden)) + 1)
    found = [match.span() for match in _any_of(hidden).finditer(data) if match.end() > first]
    for at in range(first, len(data)):
        end = data[at:]
        if any(value.startswith(end) and value != end for value in hidden) and not any(
            begin < at < stop for begin, stop in found
        ):
            return data[:at], end
    return data, b""
