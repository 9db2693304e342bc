"""History keeps results; a comparison accounts for noise."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import made
import pytest

from trainshed.bench.history import History, HistoryEntry, compare
from trainshed.bench.judge.check import check
from trainshed.errors import NotFoundError

pytestmark = [pytest.mark.benchmark]


def entry(runs: tuple[float, ...], **changes: object) -> HistoryEntry:
    base = HistoryEntry("a", "2026", "resnet50", "1", "tiny", "x", 1, 2, "valid", "throughput", "images/s",
                 sum(runs) / len(runs), 0.8, runs, "/r")  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ((100, 101, 99), (110, 111, 109), "faster"),
        ((100, 101, 99), (90, 91, 89), "slower"),
        ((100, 110, 90), (103, 113, 93), "no difference beyond noise"),
        ((100,), (120,), "unclear"),
    ],
)
def test_verdicts_account_for_noise(a: tuple[float, ...], b: tuple[float, ...], verdict: str) -> None:
    assert compare(entry(a), entry(b)).verdict == verdict


def test_a_shorter_time_to_target_is_faster() -> None:
    time = {"metric": "time_to_target", "unit": "s"}
    assert compare(entry((100, 101, 99), **time), entry((90, 91, 89), **time)).verdict == "faster"


def test_different_work_and_failed_results_are_not_compared() -> None:
    a = entry((1.0, 2.0))
    for other in ({"scale": "full"}, {"metric": "time_to_target"}, {"status": "failed"}):
        assert compare(a, entry((1.0, 2.0), **other)).verdict == "not comparable"


def test_history_lists_newest_first_and_finds_by_beginning(tmp_path: Path) -> None:
    history = History(tmp_path / "home" / "bench.sqlite")
    assert history.list() == []
    for name in ("a", "b"):
        folder = made.made_result(tmp_path / name)
        result = check(folder).result
        assert result is not None
        named = {"id": f"made-{name}", "created": f"2026-01-0{ord(name) - 96}"}
        added = history.add(result.model_copy(update=named), folder)
        assert len(added.runs) == 3
    history.add(result.model_copy(update={"id": "made-b", "created": "2026-01-02"}), folder)
    assert [e.id for e in history.list()] == ["made-b", "made-a"]
    assert history.list(workload="other") == []
    assert history.get("made-a").runs == history.list()[1].runs
    with pytest.raises(NotFoundError, match="several"):
        history.get("made")
    with pytest.raises(NotFoundError, match="no result"):
        history.get("x")


def test_a_database_left_by_a_killed_writer_is_read(tmp_path: Path) -> None:
    history = History(tmp_path / "bench.sqlite")
    folder = made.made_result(tmp_path / "r")
    result = check(folder).result
    assert result is not None
    history.add(result, folder)
    hanging = sqlite3.connect(history.path)
    hanging.execute("BEGIN IMMEDIATE")
    hanging.execute("DELETE FROM results")
    assert len(history.list()) == 1
    hanging.rollback()
    hanging.close()
