"""What the maker of an environment reports to its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class BuildProgress:
    """One piece of news. `megabytes` is None where no amount was measured."""

    environment: str
    step: str
    detail: str
    seconds: float
    megabytes: float | None = None

    def __str__(self) -> str:
        amount = "" if self.megabytes is None else f" {self.megabytes:.0f} MB"
        return f"{self.environment}: {self.step} {self.detail}{amount} ({self.seconds:.0f} s)"


ProgressCallback = Callable[[BuildProgress], None]


def silent(_: BuildProgress) -> None:
    """Reports nothing."""
