"""Whether a destination already holds what the source has: from listings if possible, else by hash."""

from __future__ import annotations

import hashlib
import os

from .local_side import LocalReader
from .location import Location
from .parts import part_size
from .remote_side import RemoteReader
from .s3.client import is_md5
from .tree import Entry

SLACK = 0.002  # file systems and listings round times differently
SKEW = 60.0  # clocks of a store and its clients agree at least this well
SAME_CLOCK = 2.0  # on one machine; listings know whole seconds only


def is_same(
    reader: LocalReader | RemoteReader,
    source: Entry,
    target_entry: Entry,
    target: Location,
    skew: float = SKEW,
) -> bool:
    """Times decide only when no write can have slipped in between them; otherwise bytes do."""
    if source.size != target_entry.size:
        return False
    if isinstance(reader, RemoteReader):
        if target.is_remote:
            return bool(source.etag) and source.etag == target_entry.etag
        if abs(target_entry.mtime - source.mtime) < SLACK and target_entry.changed > source.mtime + skew:
            return True
        return has_etag(os.path.join(target.path, target_entry.name), source.size, source.etag)  # noqa: PTH118
    if not target.is_remote:
        return abs(target_entry.mtime - source.mtime) < SLACK
    if target_entry.mtime > max(source.mtime, source.changed) + skew:
        return True
    return has_etag(os.path.join(reader.root, source.name), source.size, target_entry.etag)  # noqa: PTH118


def has_etag(path: str, size: int, etag: str) -> bool:
    """Whether the file's bytes have this ETag; False when the ETag is not a hash of them."""
    plain, _, count = etag.partition("-")
    if not is_md5(plain):
        return False
    part = part_size(size) if count else max(size, 1)
    if count and count != str(-(-size // part)):
        return False
    digests = []
    try:
        with open(path, "rb", buffering=0) as file:
            for start in range(0, max(size, 1), part):
                digests.append(_hash(file, min(part, size - start)))
    except OSError:
        return False
    whole = digests[0] if not count else hashlib.md5(b"".join(digests)).digest()  # noqa: S324
    return whole.hex() == plain


def _hash(file: object, length: int) -> bytes:
    digest = hashlib.md5()  # noqa: S324
    while length > 0:
        data = file.read(min(1 << 20, length))  # type: ignore[attr-defined]
        if not data:
            break
        digest.update(data)
        length -= len(data)
    return digest.digest()
