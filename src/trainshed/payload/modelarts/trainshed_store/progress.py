"""How far a copy is, and what it did."""

from __future__ import annotations

from dataclasses import dataclass

from .tree import Problem


@dataclass(frozen=True)
class Progress:
    """How far a copy is. Totals grow while the source is still being listed (`listing`)."""

    files: int
    bytes: int
    files_total: int
    bytes_total: int
    seconds: float
    listing: bool

    @property
    def rate(self) -> float:
        """Bytes per second so far."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        if self.listing or not self.bytes:
            return None
        return (self.bytes_total - self.bytes) / self.rate


@dataclass(frozen=True)
class CopySummary:
    """What a copy did. `complete` is False when something of the source is not at the destination."""

    files: int
    bytes: int
    skipped: int
    deleted: int
    seconds: float
    retries: int
    unrepresentable: tuple[Problem, ...] = ()
    unstable: tuple[Problem, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not (self.unrepresentable or self.unstable)
