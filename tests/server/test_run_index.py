"""The index: the same rows from the same directories, in pages without gaps, on both databases."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support import made_run
from trainshed.errors import UsageError
from trainshed.runs.events import Finished
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import RunState
from trainshed.server.accounts.identity import Identity, Role
from trainshed.server.database import Database
from trainshed.server.index import RunFilter, RunIndex

pytestmark = [pytest.mark.server]
BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
ANN = Identity(1, "ann", False, {"red": Role.MEMBER})
ADMIN = Identity(2, "dan", True)


@pytest.fixture
def index(database: Database) -> RunIndex:
    return RunIndex(database)


def pages(index: RunIndex, who: Identity, wanted: RunFilter, limit: int) -> list[str]:
    found, key = [], ""
    while True:
        rows, key = index.page(who, wanted, key, limit)
        found += [row["id"] for row in rows]
        if not key:
            return found


@BOTH
def test_pages_have_every_run_once_and_only_those_of_the_teams(index: RunIndex, tmp_path: Path) -> None:
    runs = [made_run(tmp_path, user="ann", team=("red", "blue")[n % 2]) for n in range(11)]
    index.add(runs)
    assert sorted(pages(index, ADMIN, RunFilter(), 3)) == sorted(run.id for run in runs)
    assert sorted(pages(index, ANN, RunFilter(), 4)) == sorted(run.id for run in runs[::2])
    assert index.get(runs[0].id, ANN) and index.get(runs[1].id, ANN) is None
    assert pages(index, Identity(3, "eve", False), RunFilter(), 5) == []


@BOTH
def test_search_finds_parts_of_names_and_labels_whatever_they_hold(index: RunIndex, tmp_path: Path) -> None:
    run = made_run(tmp_path, "resnet50", user="ann", team="red", labels={"note": "50%_off 'x' \"y\""})
    other = made_run(tmp_path, "bert", user="ann", team="red")
    index.add([run, other])
    for words in ("snet", "RESNET50", "50%_off", "'x'", '"y"', "re", "note=50"):
        assert pages(index, ANN, RunFilter(text=words), 5) == [run.id], words
    for words in ("nothing", "%%%", "___", "a\0b", "*", "resnet OR bert", '"', "-"):
        assert run.id not in pages(index, ANN, RunFilter(text=words + "?"), 5), words


@BOTH
def test_filters_join(index: RunIndex, tmp_path: Path) -> None:
    one = made_run(tmp_path, "a", user="ann", team="red", labels={"x": "1", "y": "2"})
    two = made_run(tmp_path, "b", user="cem", team="red", labels={"x": "1"})
    two.record_end(Finished(Outcome.of(None), "b", "local", "1x1", "cem", submitted=2.0, labels={"x": "1"}))
    index.add([one, two])
    assert sorted(pages(index, ANN, RunFilter(labels={"x": "1"}), 5)) == sorted([one.id, two.id])
    assert pages(index, ANN, RunFilter(labels={"x": "1", "y": "2"}), 5) == [one.id]
    assert pages(index, ANN, RunFilter(state=RunState.SUCCEEDED), 5) == [two.id]
    assert pages(index, ANN, RunFilter(owner="cem", name="b"), 5) == [two.id]
    assert index.counts() == {"pending": 1, "succeeded": 1}
    assert [row["id"] for row in index.live()] == [one.id]


@BOTH
def test_a_run_indexed_again_has_one_row(index: RunIndex, tmp_path: Path) -> None:
    run = made_run(tmp_path, user="ann", team="red", labels={"x": "1"})
    index.add([run])
    index.add([run])
    assert index.ids() == {run.id}
    index.remove(run.id)
    assert index.ids() == set() and pages(index, ANN, RunFilter(text=run.id), 5) == []


@BOTH
def test_the_same_new_runs_may_be_indexed_by_several_at_once(index: RunIndex, tmp_path: Path) -> None:
    runs = [made_run(tmp_path, user="ann", team="red", labels={"x": "1"}) for _ in range(5)]
    problems: list[Exception] = []

    def add() -> None:
        try:
            index.add(runs)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == [] and index.ids() == {run.id for run in runs}


def test_a_run_that_was_seen_to_end_does_not_live_again(index: RunIndex, tmp_path: Path) -> None:
    run = made_run(tmp_path, user="ann", team="red")
    run.record_end(Finished(Outcome.of(None), "job", "local", "1x1", "ann", submitted=2.0))
    index.add([run])
    index.update({run.id: {"state": "running", "is_final": False}})
    row = index.get(run.id, ANN)
    assert row and row["state"] == "succeeded" and row["is_final"]


def test_an_unreadable_run_is_an_administrators_to_see(index: RunIndex, tmp_path: Path) -> None:
    run = made_run(tmp_path, user="ann", team="red")
    (run.events_folder / "submit.jsonl").write_text('{"v": 99}\n')
    index.add([run])
    assert pages(index, ANN, RunFilter(), 5) == []
    row = index.get(run.id, ADMIN)
    assert row and row["state"] == "unreadable" and "another release" in row["reason"]


@pytest.mark.parametrize("key", ["x", "W10=", "WzEsMl0=", "bnVsbA==", "é", "WyJuYW4iLCAieCJd"])
def test_an_invalid_page_key_is_told(index: RunIndex, key: str) -> None:
    with pytest.raises(UsageError, match="after"):
        index.page(ANN, RunFilter(), key)
