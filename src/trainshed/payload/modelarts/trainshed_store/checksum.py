"""Checksums of bytes in transit: CRC-32 where the store speaks it (several times as fast), else MD5. Pure.

Both are written as bytes: 4 of CRC-32, 16 of MD5, so a digest's length shows its kind.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import lru_cache

try:
    from zlib_ng.zlib_ng import crc32 as _crc32  # a quarter of zlib's time
except ImportError:  # in a job's own Python, or where there is no wheel of it
    from zlib import crc32 as _crc32

CRC32_LENGTH = 4
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31  # bits stand in the order of CRC-32: the highest is x^0


def md5(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.md5(data).digest()  # noqa: S324 - S3's own checksum, not a secret


def crc32(data: bytes | bytearray | memoryview) -> bytes:
    return _crc32(data).to_bytes(CRC32_LENGTH, "big")


class Crc32:
    """A CRC-32 of what comes piece by piece, used as those of hashlib are."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._value = _crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(CRC32_LENGTH, "big")


def is_whole_crc32(header: str) -> bool:
    """Whether a store's header is the CRC-32 of a whole object (one made of parts' has their number behind it)."""
    return len(header) == 8 and header.endswith("==")


def to_header(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def joined_crc32(digests: Sequence[bytes], lengths: Sequence[int]) -> bytes:
    """The CRC-32 of parts put together, from those of the parts."""
    crc = 0
    for digest, length in zip(digests, lengths):  # noqa: B905 (Python 3.7 has no strict)
        crc = _product(_power(length), crc) ^ int.from_bytes(digest, "big")
    return crc.to_bytes(CRC32_LENGTH, "big")


def _product(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo CRC-32's."""
    total = 0
    while a:
        if a & _ONE:
            total ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return total


@lru_cache(maxsize=64)
def _power(length: int) -> int:
    """x to the power of so many bytes' bits: what a CRC is multiplied by when so many bytes follow."""
    result, square = _ONE, _ONE >> 8  # x^0, and x^8 for one byte
    while length:
        if length & 1:
            result = _product(square, result)
        square = _product(square, square)
        length >>= 1
    return result
