"""The few XML documents of S3, written and read. Pure.

Listings are read with regular expressions: they are machine made, and a parser costs ten times as much
on the ten thousand keys of a sync that finds nothing to do.
"""

from __future__ import annotations

import calendar
import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

from ..errors import StoreError

_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_REFERENCE = re.compile(r"&(#x?[0-9a-fA-F]+|lt|gt|amp|quot|apos);")
_ITEM = re.compile(r"<(Contents|CommonPrefixes)>(.*?)</\1>", re.S)
_FIELD = {
    name: re.compile(rf"<{name}(?:\s[^>]*)?>(.*?)</{name}>", re.S)
    for name in ("Key", "Prefix", "Size", "ETag", "LastModified", "PartNumber", "UploadId", "Initiated")
}


class Listed(NamedTuple):
    """One line of a listing: an object, or with a delimiter a common prefix."""

    key: str
    size: int = 0
    etag: str = ""
    modified: float = 0.0
    is_prefix: bool = False


def plain(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    name = match.group(1)
    if name[0] != "#":
        return _NAMED[name]
    return chr(int(name[2:], 16) if name[1] in "xX" else int(name[1:]))


def texts(body: bytes, tag: str) -> list[str]:
    """Contents of every element of that name."""
    pattern = _FIELD.get(tag) or re.compile(rf"<{tag}(?:\s[^>]*)?>(.*?)</{tag}>", re.S)
    return [plain(found) for found in pattern.findall(body.decode("utf-8", "replace"))]


def read_listing(body: bytes) -> list[Listed]:
    text = body.decode("utf-8", "surrogateescape")
    decode = unquote_plus if "<EncodingType>url</EncodingType>" in text else (lambda key: key)
    count = text.count("<Contents>")
    columns = [_FIELD[name].findall(text) for name in ("Key", "Size", "ETag", "LastModified")]
    if "<CommonPrefixes>" not in text and all(len(column) == count for column in columns):
        return [
            Listed(decode(plain(key)), _integer(size), _etag(etag), timestamp(modified))
            for key, size, etag, modified in zip(*columns)  # noqa: B905 (Python 3.7 has no strict)
        ]
    items = []
    for kind, inner in _ITEM.findall(text):
        if kind == "CommonPrefixes":
            items.append(Listed(decode(_field(inner, "Prefix")), is_prefix=True))
            continue
        items.append(
            Listed(
                decode(_field(inner, "Key")),
                _integer(_field(inner, "Size") or "0"),
                _etag(_field(inner, "ETag")),
                timestamp(_field(inner, "LastModified")),
            )
        )
    return items


def next_token(body: bytes) -> str:
    """Where the next page begins, without reading this one."""
    return next(iter(texts(body, "NextContinuationToken")), "")


def _etag(text: str) -> str:
    if text.startswith("&#34;") and text.endswith("&#34;"):
        return text[5:-5].lower()
    return plain(text).strip('"').lower()


def _field(inner: str, name: str) -> str:
    found = _FIELD[name].search(inner)
    return plain(found.group(1)) if found else ""


def _integer(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise StoreError(f"the store answered {text[:40]!r} for a number", "is the endpoint an S3 store?")
    return int(text)


@lru_cache(maxsize=4096)
def timestamp(text: str) -> float:
    """ISO time as listings write it: 2026-01-02T03:04:05[.678]Z."""
    try:
        numbers = [int(text[a:b]) for a, b in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
        fraction = text[19:].rstrip("Z")
        return calendar.timegm((*numbers, 0, 0, 0)) + (float(fraction) if fraction.startswith(".") else 0.0)
    except ValueError:
        return 0.0


def read_parts(body: bytes) -> dict[int, tuple[int, str]]:
    found = {}
    for inner in re.findall(r"<Part>(.*?)</Part>", body.decode("utf-8", "replace"), re.S):
        found[_integer(_field(inner, "PartNumber"))] = (
            _integer(_field(inner, "Size")),
            _field(inner, "ETag").strip('"'),
        )
    return found


def newest_upload(body: bytes, key: str) -> str:
    best = ("", "")
    for inner in re.findall(r"<Upload>(.*?)</Upload>", body.decode("utf-8", "replace"), re.S):
        found = _field(inner, "Key")
        if key in (found, unquote(found), unquote_plus(found)):
            best = max(best, (_field(inner, "Initiated"), _field(inner, "UploadId")))
    return best[1]


def delete_body(keys: list[str]) -> bytes:
    # Control characters cannot be written in XML 1.0 except as references, which stores accept.
    items = "".join(f"<Object><Key>{_reference(key)}</Key></Object>" for key in keys)
    return f"<Delete><Quiet>true</Quiet>{items}</Delete>".encode("utf-8", "surrogateescape")


def _reference(key: str) -> str:
    escaped = key.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(c if c >= " " else f"&#{ord(c)};" for c in escaped)


def first_delete_error(body: bytes) -> tuple[str, str] | None:
    found = re.search(r"<Error>(.*?)</Error>", body.decode("utf-8", "replace"), re.S)
    if not found:
        return None
    inner = found.group(1).encode()
    return (next(iter(texts(inner, "Key")), "?"), next(iter(texts(inner, "Message")), "no reason given"))


def complete_body(etags: list[str]) -> bytes:
    parts = "".join(
        f'<Part><PartNumber>{number}</PartNumber><ETag>"{etag}"</ETag></Part>'
        for number, etag in enumerate(etags, 1)
    )
    return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
