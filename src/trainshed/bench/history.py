"""All results of this home in one small SQLite file, and the comparison of two of them.

`$TRAINSHED_HOME/bench.sqlite`. The folders stay the truth: a lost database is
made again by adding them. A verdict accounts for noise: two results differ
only when Welch's 95% interval of the difference leaves out zero.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from trainshed.bench.measure.statistics import Interval, welch
from trainshed.bench.result import Result, number
from trainshed.errors import NotFoundError

TABLE = """
CREATE TABLE IF NOT EXISTS results (
  id TEXT PRIMARY KEY, created TEXT NOT NULL, workload TEXT NOT NULL, version TEXT NOT NULL,
  scale TEXT NOT NULL, framework TEXT NOT NULL, nodes INTEGER NOT NULL, ranks INTEGER NOT NULL,
  status TEXT NOT NULL, metric TEXT NOT NULL, unit TEXT NOT NULL, score REAL, quality REAL,
  runs TEXT NOT NULL, folder TEXT NOT NULL)
"""

NOT_COMPARABLE = "not comparable"
"""The verdict on two results of different work, or without a score."""


@dataclass(frozen=True)
class HistoryEntry:
    """One result, as history keeps it; `runs` are the values of the counted runs that reached the target."""

    id: str
    created: str
    workload: str
    version: str
    scale: str
    framework: str
    nodes: int
    ranks: int
    status: str
    metric: str
    unit: str
    score: float | None
    quality: float | None
    runs: tuple[float, ...]
    folder: str


@dataclass(frozen=True)
class Comparison:
    a: HistoryEntry
    b: HistoryEntry
    verdict: str
    """faster | slower | no difference beyond noise | unclear | not comparable"""
    sentence: str
    change: float | None = None
    interval: Interval | None = None
    p: float | None = None


class History:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, result: Result, folder: Path) -> HistoryEntry:
        """Keep a result; the same id again replaces what was known of it."""
        entry = entry_of(result, folder)
        values = [*list(vars(entry).values())[:-2], json.dumps(entry.runs), entry.folder]
        with self._open() as db, db:
            marks = ",".join("?" * len(values))
            db.execute(f"INSERT OR REPLACE INTO results VALUES ({marks})", values)  # noqa: S608
        return entry

    def list(self, workload: str = "", limit: int = 50) -> list[HistoryEntry]:
        """Newest first."""
        with self._open() as db:
            rows = db.execute(
                "SELECT * FROM results WHERE ? IN ('', workload) ORDER BY created DESC, id DESC LIMIT ?",
                (workload, limit),
            ).fetchall()
        return [_entry(row) for row in rows]

    def get(self, name: str) -> HistoryEntry:
        """A result by id or by a beginning of it that only one result has."""
        with self._open() as db:
            rows = db.execute(
                "SELECT * FROM results WHERE id = ? OR substr(id, 1, ?) = ? ORDER BY id = ? DESC, id LIMIT 3",
                (name, len(name), name, name),
            ).fetchall()
        if not rows:
            raise NotFoundError(
                f"no result named {name!r} in {self.path}", "`trainshed bench history` lists them"
            )
        if len(rows) > 1 and rows[0][0] != name:
            raise NotFoundError(f"{name!r} is the beginning of several results", "give more of the name")
        return _entry(rows[0])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(TABLE)
            yield db


def entry_of(result: Result, folder: Path) -> HistoryEntry:
    counted = set(result.score.runs_counted) - set(result.score.runs_not_converged)
    quantities = [
        r.throughput if result.score.metric == "throughput" else r.time_to_target
        for r in result.runs
        if r.index in counted
    ]
    runs = tuple(v for q in quantities if (v := number(q)) is not None)
    unit = getattr(result.score.value, "unit", "")
    return HistoryEntry(
        result.id, result.created, result.workload, result.version, result.scale, result.framework,
        result.shape.nodes, result.shape.ranks, result.status, result.score.metric, unit,
        number(result.score.value), number(result.score.quality), runs, str(folder.resolve()),
    )  # fmt: skip


def compare(a: HistoryEntry, b: HistoryEntry) -> Comparison:
    """Is B faster than A? Only if the difference is larger than the noise of both."""
    if why := _not_comparable(a, b):
        return Comparison(a, b, NOT_COMPARABLE, f"{b.id} and {a.id} are not comparable: {why}")
    assert a.score is not None and b.score is not None
    change = b.score / a.score - 1
    test = welch(a.runs, b.runs)
    if test is None:
        text = f"B is {change:+.1%} against A, but one run says nothing about noise: measure at least two"
        return Comparison(a, b, "unclear", text, change)
    base = fmean(a.runs)
    interval = Interval(test.interval.low / base, test.interval.high / base)
    span = f"95% interval {interval.low:+.1%} … {interval.high:+.1%}, p = {test.p:.2g}"
    if interval.low <= 0 <= interval.high:
        text = f"no difference beyond noise: {change:+.1%} ({span})"
        return Comparison(a, b, "no difference beyond noise", text, change, interval, test.p)
    better = (interval.low > 0) == (a.metric == "throughput")
    verdict = "faster" if better else "slower"
    what = "throughput" if a.metric == "throughput" else "time to target"
    return Comparison(
        a, b, verdict, f"B is {verdict}: {what} {change:+.1%} ({span})", change, interval, test.p
    )


def _not_comparable(a: HistoryEntry, b: HistoryEntry) -> str:
    for name in ("workload", "version", "scale", "metric", "unit"):
        left, right = getattr(a, name), getattr(b, name)
        if left != right:
            return f"{name} is {left!r} and {right!r}"
    for entry in (a, b):
        if entry.status != "valid" or entry.score is None:
            return f"{entry.id} is {entry.status}"
    return "" if a.score else f"the score of {a.id} is zero"


def _entry(row: tuple[object, ...]) -> HistoryEntry:
    values = list(row)
    values[13] = tuple(json.loads(str(values[13])))
    return HistoryEntry(*values)  # type: ignore[arg-type]
