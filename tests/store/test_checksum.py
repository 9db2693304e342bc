"""CRC-32s of parts put together are that of the whole."""

from __future__ import annotations

import os
import zlib

import pytest

from trainshed.payload.modelarts.trainshed_store import checksum

pytestmark = pytest.mark.store


@pytest.mark.parametrize("lengths", [[], [0], [1], [5, 0, 7], [8 << 10, 8 << 10, 3], [1, 65_537, 2]])
def test_joined_crc32s_are_that_of_the_whole(lengths: list[int]) -> None:
    parts = [os.urandom(length) for length in lengths]
    joined = checksum.joined_crc32([checksum.crc32(part) for part in parts], lengths)
    assert int.from_bytes(joined, "big") == zlib.crc32(b"".join(parts))


def test_a_running_crc32_does_not_depend_on_the_pieces() -> None:
    data = os.urandom(1000)
    running = checksum.Crc32()
    for start in range(0, 1000, 7):
        running.update(data[start : start + 7])
    assert running.digest() == checksum.crc32(data)


@pytest.mark.parametrize(
    ("header", "whole"), [("j9R+QQ==", True), ("", False), ("j9R+QQ==-3", False), ("j9R+QQ", False)]
)
def test_only_the_crc32_of_a_whole_object_is_taken_for_one(header: str, whole: bool) -> None:
    assert checksum.is_whole_crc32(header) is whole
