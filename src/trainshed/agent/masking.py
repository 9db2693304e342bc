"""Logs in which a job's secrets do not appear, even when its script prints them.

A job without secrets writes to its log itself. With secrets its output passes
through here, where each value is replaced by `***`: as it is, line by line, and
as JSON, Python, shells, CSV, URLs, HTML, hexadecimal and Base64 (also of a longer text) write it. A
script that changes a value in another way (encrypts it, prints it letter by letter) can still show it.
"""

from __future__ import annotations

import base64
import heapq
import html
import json
import os
import re
import shlex
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""Shorter values would blot out ordinary words: engines refuse them as secrets."""

_BASE64_FROM = 6
"""Encoded, a shorter value may be part of anything."""
_BASE64_CORE = 8


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
            if len(value) < SHORTEST:
                continue
            data = value.encode("utf-8", "surrogateescape")
            found |= {text.encode("utf-8", "surrogateescape") for text in _written(value)}
            found |= {data.hex().encode(), data.hex().upper().encode()}
            found |= {quote(data, safe="").encode(), quote(data).encode(), quote_plus(data).encode()}
            found |= {quote(data, safe="").lower().encode()}
            found |= set(_base64(data))
    return sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True)


def _written(value: str) -> set[str]:
    """A value as programs print it between quotes: JSON (also within JSON, or made safe for HTML), Python, shells, CSV."""
    json_forms = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    found = {value, repr(value)[1:-1], html.escape(value), html.escape(value).replace("&#x27;", "&#39;")}
    found |= json_forms | {text.replace("/", "\\/") for text in json_forms}
    found |= {json.dumps(text)[1:-1] for text in json_forms} | {repr(text)[1:-1] for text in json_forms}
    found |= {text.replace("'", "\\u0027") for text in json_forms}
    for letter in "<>&":
        json_forms = {text.replace(letter, f"\\u{ord(letter):04x}") for text in json_forms}
    found |= json_forms | {text.replace("'", "\\u0027") for text in json_forms}
    found |= {value.replace('"', '""'), shlex.quote(value), value.replace("'", "'\\''")}
    found |= {re.sub(r'([\\"$`])', r"\\\1", value)}
    found |= {re.sub(r"([^\w@%+=:,./-])", r"\\\1", value, flags=flags) for flags in (re.ASCII, re.UNICODE)}
    return found


def _base64(data: bytes) -> Iterator[bytes]:
    """A value in Base64: by itself, and as part of something longer (`user:password`), at each of three offsets."""
    if len(data) < _BASE64_FROM:
        return
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        yield alphabet(data).rstrip(b"=")
        for offset in range(3):
            # Letters at the ends hold bits of what is beside it.
            whole = alphabet(b"\0" * offset + data)
            core = whole[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6]
            if len(core) >= _BASE64_CORE:
                yield core


def _copy(read: int, path: Path, hidden: list[bytes]) -> None:
    held = b""
    with os.fdopen(read, "rb", buffering=0) as source, path.open("ab", buffering=0) as log:
        while chunk := source.read(1 << 16):
            ready, held = _divide(held + chunk, hidden)
            log.write(mask(ready, hidden))
        log.write(mask(held, hidden))


def mask(data: bytes, hidden: list[bytes]) -> bytes:
    out, at = [], 0
    for begin, end in _spans(data, hidden):
        out += [data[at:begin], b"***"]
        at = end
    return b"".join([*out, data[at:]])


def _spans(data: bytes, hidden: list[bytes]) -> list[tuple[int, int]]:
    """Where secrets lie; of two that begin alike the longer one counts.

    One search for each form: an expression of all of them is slower by far when a secret has many lines.
    """
    # Of each form the next place where it lies; forms are in the order of their length.
    ahead = [(at, number) for number, value in enumerate(hidden) if (at := data.find(value)) >= 0]
    heapq.heapify(ahead)
    found: list[tuple[int, int]] = []
    past = 0
    while ahead:
        begin, number = heapq.heappop(ahead)
        if begin >= past:
            past = begin + len(hidden[number])
            found.append((begin, past))
        if (at := data.find(hidden[number], past)) >= 0:
            heapq.heappush(ahead, (at, number))
    return found


def _divide(data: bytes, hidden: list[bytes]) -> tuple[bytes, bytes]:
    """What can be written once it is masked, and the end that may still become a secret, or a longer one."""
    longest = max(map(len, hidden))
    found = [span for span in _spans(data, hidden) if span[1] > len(data) - longest]
    held = len(data)
    for value in hidden:
        at = data.find(value[:1], max(0, len(data) - len(value) + 1))
        while 0 <= at < held:
            if value.startswith(data[at:]) and not any(begin < at < end for begin, end in found):
                held = at
                break
            at = data.find(value[:1], at + 1)
    return data[:held], data[held:]
