"""What both ends of a copy agree on: parts of large files, and what is kept of a file besides its bytes."""

from __future__ import annotations

from dataclasses import dataclass

PART, PART_LOCAL = 8 << 20, 32 << 20
MAX_PARTS = 10_000


def part_size(size: int) -> int:
    """Parts of an object of this size: 8 MiB, more only where a store's limit of parts demands it."""
    part = PART
    while part * MAX_PARTS < size:
        part *= 2
    return part


def fetched_part_size(size: int, *, is_local: bool) -> int:
    """Parts of a download that is not held in memory: large where the store shares this machine's cores."""
    return max(part_size(size), PART_LOCAL) if is_local else part_size(size)


class ChangedError(Exception):
    """The source changed or vanished while it was read: not an error of the copy, but not copied either."""


@dataclass(frozen=True)
class Meta:
    """What a copy keeps besides bytes: modification time and, if known, permission bits."""

    mtime: float
    mode: int | None
