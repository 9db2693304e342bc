"""What a check says: how bad, where, what, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"  # the job will not start, or will start wrong
    WARNING = "warning"  # it may work, but should be checked


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    where: str  # a JSON path, or `assignments[i]`
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.what}; {self.remedy}"


def ranges(numbers: Sequence[int], limit: int = 8) -> str:
    """Ascending numbers in short: "3, 5-7, 9"; past `limit` runs the rest is counted, not listed."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit]]
    rest = sum(b - a + 1 for a, b in runs[limit:])
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
