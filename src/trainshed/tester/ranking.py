"""Who is first: pure functions from tests and results to tables.

Only results that passed the Tester's own check on real devices are ranked,
only against results of the same kind, and of each test only the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.tester.model import Stored, Test


@dataclass(frozen=True)
class RankingLine:
    """One line of a ranking."""

    place: int
    test: Test
    result: Stored
    per_device: float | None

    @property
    def score(self) -> float:
        return float(self.result.summary["score"])


@dataclass(frozen=True)
class Ranking:
    """All results that may be compared with one another, best first."""

    title: str
    metric: str
    unit: str
    places: tuple[RankingLine, ...]


def rank(tests: Sequence[Test], results: Sequence[Stored]) -> list[Ranking]:
    """The rankings, one for each kind of result."""
    known = {test.id: test for test in tests}
    newest: dict[str, Stored] = {}
    for result in sorted(results, key=lambda item: (item.received, item.upload)):
        if result.state != "valid" or result.test not in known or result.summary.get("emulated"):
            continue
        if result.summary.get("score") is not None:
            newest[result.test] = result
    groups: dict[tuple[str, ...], list[Stored]] = {}
    for result in newest.values():
        groups.setdefault(_kind(known[result.test], result.summary), []).append(result)
    return [_ranking(kind, groups[kind], known) for kind in sorted(groups)]


def _kind(test: Test, summary: dict[str, Any]) -> tuple[str, ...]:
    of_test = (test.mode, test.model, test.division, test.scenario, test.object)
    return (*of_test, *(str(summary[name]) for name in ("workload", "version", "scale", "metric", "unit")))


def _ranking(kind: tuple[str, ...], results: list[Stored], known: dict[str, Test]) -> Ranking:
    metric, unit = kind[8], kind[9]
    higher = metric == "throughput"
    ordered = sorted(
        results, key=lambda r: (-r.summary["score"] if higher else r.summary["score"], r.received)
    )
    places: list[RankingLine] = []
    for index, result in enumerate(ordered, 1):
        score = result.summary["score"]
        same = places and places[-1].score == score
        each = score / result.summary["ranks"] if higher and result.summary.get("ranks") else None
        places.append(RankingLine(places[-1].place if same else index, known[result.test], result, each))
    title = f"{kind[1]} · {kind[0]} · {kind[2]} · {kind[3]} · {kind[4]} · {kind[5]} {kind[6]} ({kind[7]})"
    return Ranking(title, metric, unit, tuple(places))
