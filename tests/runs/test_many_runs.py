"""Finding one of many runs, and listing very many: only each ended run's end is opened."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import made_run
from trainshed.api import Client
from trainshed.errors import NotFoundError, UsageError
from trainshed.runs.directory import Runs
from trainshed.runs.states import RunState
from trainshed.runs.summary import Summary

pytestmark = [pytest.mark.foundation, pytest.mark.core]
_opened: list[str] | None = None


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else "")


sys.addaudithook(_hook)  # cannot be taken back, so it does nothing outside the block below


@contextmanager
def opened() -> Iterator[list[str]]:
    """The names of all files that are opened inside the block."""
    global _opened
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None


def write_ended(root: Path, count: int) -> list[Path]:
    """Run directories as they are on a disk, written without the program's own writer."""
    made = []
    for number in range(count):
        folder = root / f"job-{number:05}"
        events = folder / "events"
        (folder / "node-0").mkdir(parents=True)
        events.mkdir()
        submitted = {
            "v": 1,
            "time": 1000.0 + number,
            "kind": "submitted",
            "name": "job",
            "engine": "local",
            "shape": "1x1",
        }
        end = {
            "v": 1, "time": 2000.0 + number, "kind": "finished", "state": "succeeded", "exit_code": 0,
            "name": "job", "engine": "local", "shape": "1x1", "attempt": 1, "submitted": 1000.0 + number,
        }  # fmt: skip
        (events / "submit.jsonl").write_text(json.dumps(submitted) + "\n")
        (events / "node-0-1.jsonl").write_text("what no reader of an ended run may open")
        (events / "end.jsonl").write_text(json.dumps(end) + "\n")
        made.append(folder)
    return made


def test_of_ten_thousand_ended_runs_only_the_ends_are_opened(tmp_path: Path) -> None:
    made = write_ended(tmp_path / "runs", 10_000)
    client = Client.from_environment({}, tmp_path)
    with opened() as names:
        found = list(client.summaries())
    below = [name for name in names if name.startswith(str(tmp_path))]
    assert sorted(below) == [f"{folder}/events/end.jsonl" for folder in made]
    assert [summary.id for summary in found] == [folder.name for folder in reversed(made)]
    assert {summary.state for summary in found} == {RunState.SUCCEEDED}
    assert (found[0].submitted, found[0].ended) == (10_999.0, 11_999.0)


def test_of_ten_thousand_runs_few_are_held_while_they_are_listed(tmp_path: Path) -> None:
    write_ended(tmp_path / "runs", 10_000)
    count = most = 0
    for _ in Client.from_environment({}, tmp_path).summaries():
        count += 1
        if count % 1000 == 1:
            most = max(most, sum(type(item) is Summary for item in gc.get_objects()))
    assert count == 10_000 and 0 < most < 1000


def test_a_living_run_among_ended_ones_is_read_whole_and_no_other(tmp_path: Path) -> None:
    write_ended(tmp_path / "runs", 20)
    living = made_run(tmp_path, "living")
    with opened() as names:
        found = list(Client.from_environment({}, tmp_path).summaries())
    below = [Path(name) for name in names if name.startswith(str(tmp_path))]
    assert {path.name for path in below if living.path not in path.parents} == {"end.jsonl"}
    assert found[0].id == living.id


def test_a_run_whose_first_event_is_just_being_written_is_none_yet(tmp_path: Path) -> None:
    run = made_run(tmp_path, "made")
    other = tmp_path / "runs" / "coming"
    (other / "events").mkdir(parents=True)
    (other / "events" / "submit.jsonl").touch()
    client = Client.from_environment({}, tmp_path)
    assert [summary.id for summary in client.summaries()] == [run.id] == [found.id for found in client.runs()]


def test_a_beginning_must_be_that_of_one_run(tmp_path: Path) -> None:
    runs = Runs.of(tmp_path)
    made = [made_run(tmp_path, name) for name in ("train-a", "train-b", "test")]
    assert runs.find("te") == made[2] and runs.find("train-a") == made[0]
    assert runs.find(made[1].id) == made[1]
    with pytest.raises(UsageError) as caught:
        runs.find("train")
    assert caught.value.message.startswith("2 runs begin with 'train': ")
    assert all(run.id in caught.value.message for run in made[:2]) and "write more" in caught.value.hint
    with pytest.raises(NotFoundError):
        runs.find("nothing")


def test_an_id_that_begins_another_is_itself(tmp_path: Path) -> None:
    runs, run = Runs.of(tmp_path), made_run(tmp_path)
    longer = run.path.with_name(f"{run.id}.1")
    (longer / "events").mkdir(parents=True)
    (longer / "events" / "submit.jsonl").write_bytes((run.events_folder / "submit.jsonl").read_bytes())
    assert runs.find(run.id) == run and len(runs.all()) == 2


def test_many_candidates_are_not_all_listed(tmp_path: Path) -> None:
    write_ended(tmp_path / "runs", 30)
    with pytest.raises(UsageError, match=r"30 runs begin with 'job': job-00029, .*, … \(") as caught:
        Runs.of(tmp_path).find("job")
    assert caught.value.message.count("job-") == 5


def test_runs_are_found_by_all_of_their_labels(tmp_path: Path) -> None:
    both = made_run(tmp_path, "both", labels={"sweep": "7", "rate": "0.1"})
    one = made_run(tmp_path, "one", labels={"sweep": "7"})
    made_run(tmp_path, "none")
    client = Client.from_environment({}, tmp_path)
    assert {run.id for run in client.runs({"sweep": "7"})} == {both.id, one.id}
    assert [run.id for run in client.runs({"sweep": "7", "rate": "0.1"})] == [both.id]
    assert client.runs({"sweep": "8"}) == [] and len(client.runs()) == 3


def test_runs_made_together_share_a_name_and_are_numbered(tmp_path: Path) -> None:
    made = Runs.of(tmp_path).create("array", 3)
    base = made[0].id.removesuffix(".0")
    assert [run.id for run in made] == [f"{base}.0", f"{base}.1", f"{base}.2"]
