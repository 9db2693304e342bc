"""Reading a run never writes; the reconciler does, one at a time, and an end is recorded once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import made_run, tree
from trainshed import files
from trainshed.access import StoreAccess
from trainshed.api import Client
from trainshed.runs import locations, reconciler
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import (
    AttemptFinished,
    AttemptStarted,
    FailureSeen,
    Finished,
    PhaseFinished,
    RanksStarted,
    UnreadableRunError,
)
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.reconciler import reconcile
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import EngineStatus, phases, summaries, summarise

pytestmark = [pytest.mark.foundation, pytest.mark.core]
GONE = EngineStatus(alive=False)


def started(home: Path, name: str = "job") -> RunDirectory:
    run = made_run(home, name)
    run.node(0).mkdir()
    run.writer("driver-1").append(AttemptStarted(1))
    run.writer("coordinator-1").append(RanksStarted(1))
    run.node_writer(0, 1).append(PhaseFinished(1, "prepare", 1.0))
    return run


def every_kind(home: Path) -> None:
    """Runs in every situation a reader may meet."""
    started(home, "running")
    started(home, "stopping").request_stop("enough")
    made_run(home, "pending")
    Runs.of(home).create("being-made")
    failed = started(home, "failed")
    failed.node_writer(0, 1).append(FailureSeen(1, Failure(Cause.NODE, "lost")))
    ended = started(home, "ended")
    ended.record_end(Finished(Outcome.of(None)))
    odd = made_run(home, "odd")
    (odd.events_folder / "driver-1.jsonl").write_text('{"v": 7}\n')


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Takes the right to write away from everybody but root, and gives it back at the end."""
    folders: list[Path] = []

    def close() -> None:
        folders.extend([tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())])
        for folder in folders:
            folder.chmod(0o555)

    yield close
    for folder in folders:
        folder.chmod(0o755)


def test_reading_writes_nothing(tmp_path: Path, read_only: Callable[[], None]) -> None:
    every_kind(tmp_path)
    read_only()
    before = tree(tmp_path)
    for _ in range(2):
        found = {
            summary.name or summary.id.partition("-")[0]: summary for summary in summaries(Runs.of(tmp_path))
        }
        for run in Runs.of(tmp_path).all():
            try:
                summarise(run, GONE), phases(run), run.notes(), run.stop_reason(), run.reference(), run.end()
            except UnreadableRunError:
                assert run.id.startswith("odd")
    states = {name: summary.state.value for name, summary in found.items() if name}
    assert states["running"] == "running" and states["stopping"] == "stopping"
    assert states["failed"] == "running", "its processes may live: only the reconciler concludes"
    assert len(found) == 6 and tree(tmp_path) == before


def test_polling_writes_nothing(tmp_path: Path) -> None:
    every_kind(tmp_path)
    from trainshed.engines.local.engine import ENGINE

    before = tree(tmp_path)
    runs = [run for run in Runs.of(tmp_path).all() if not run.id.startswith("odd")]
    assert {status.alive for status in ENGINE.poll(runs).values()} == {False}
    assert tree(tmp_path) == before


def test_what_must_not_be_written_is_shown_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(tmp_path)
    before = tree(tmp_path)

    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(reconciler, "hold", refuse)
    (summary,) = Client.from_environment({}, tmp_path).summaries()
    assert summary.state is RunState.RUNNING and tree(tmp_path) == before
    assert run.end() is None


@pytest.mark.parametrize(
    "status", [EngineStatus(), EngineStatus(waiting="queue"), EngineStatus(problem="?", alive=False)]
)
def test_a_run_that_lives_or_may_live_is_left_alone(tmp_path: Path, status: EngineStatus) -> None:
    run = started(tmp_path)
    before = {name: content for name, content in tree(tmp_path).items() if "events" in name}
    assert reconcile(run, status, StoreAccess(run.home)) == status
    assert {name: content for name, content in tree(tmp_path).items() if "events" in name} == before


def test_whoever_comes_second_leaves_it_to_the_first(tmp_path: Path) -> None:
    run = started(tmp_path)
    held = files.hold(run.path / "reconcile.lock")
    assert held is not None
    reconcile(run, GONE, StoreAccess(run.home))
    assert run.end() is None
    os.close(held)
    reconcile(run, GONE, StoreAccess(run.home))
    assert run.end() is not None


def test_a_run_put_back_into_the_queue_waits_again_and_is_told_once(tmp_path: Path) -> None:
    run = started(tmp_path)
    for _ in range(3):
        reconcile(run, EngineStatus(requeued=True), StoreAccess(run.home))
    assert (summarise(run).state, summarise(run).reason) == (RunState.PENDING, reconciler.REQUEUED)
    assert len(run.events("reconciler")) == 1


def test_a_mirror_whose_place_cannot_be_read_is_unreadable_and_not_gone(tmp_path: Path) -> None:
    run = started(tmp_path)
    (run.path / locations.FILE).write_text('{"version": 2}')
    with pytest.raises(UnreadableRunError, match="this release reads 1"):
        reconcile(run, GONE, StoreAccess(run.home))
    assert run.end() is None


def at_once(*works: Callable[[], None]) -> None:
    """Run all of them in threads that start together; what one raises is raised here."""
    barrier = threading.Barrier(len(works))
    problems: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            barrier.wait(30)
            work()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if problems:
        raise problems[0]


def test_of_many_ends_at_once_exactly_one_stands(tmp_path: Path) -> None:
    for _ in range(20):
        run = made_run(tmp_path)
        won: list[int] = []

        def record(code: int, run: RunDirectory = run, won: list[int] = won) -> None:
            if run.record_end(Finished(Outcome.of(Failure(Cause.RANK, f"rank {code}", exit_code=code)))):
                won.append(code)

        at_once(*(lambda code=code: record(code) for code in range(1, 9)))
        assert len(won) == 1 and summarise(run).exit_code == won[0]


def test_readers_and_reconcilers_in_threads_agree_on_one_end(tmp_path: Path) -> None:
    runs = [started(tmp_path, f"job-{number}") for number in range(30)]
    seen: dict[str, set[Any]] = {run.id: set() for run in runs}

    def reconciling() -> None:
        for run in runs:
            reconcile(run, GONE, StoreAccess(run.home))

    def reading() -> None:
        for _ in range(20):
            for summary in summaries(Runs.of(tmp_path)):
                if summary.state.is_final:
                    seen[summary.id].add((summary.state, summary.ended, summary.reason))

    at_once(reconciling, reconciling, reading, reading, reading)
    reading()
    assert all(len(ends) == 1 for ends in seen.values())
    assert {state for ends in seen.values() for state, *_ in ends} == {RunState.LOST}


LOOP = """
import sys
from pathlib import Path
from trainshed.api import Client
from trainshed.runs.directory import Runs
from trainshed.runs.summary import summaries
from trainshed.access import StoreAccess
home, role = Path(sys.argv[1]), sys.argv[2]
client, ends = Client.from_environment({}, home), {}
print("ready", flush=True)
sys.stdin.readline()
while True:
    found = client.summaries() if role == "reconcile" else summaries(Runs.of(home))
    for summary in found:
        if summary.state.is_final:
            end = (summary.state.value, summary.ended, summary.reason)
            assert ends.setdefault(summary.id, end) == end, (ends[summary.id], end)
    if len(ends) == int(sys.argv[3]):
        break
print(sorted(ends.items()))
"""


def test_readers_and_reconcilers_in_processes_agree_on_one_end(tmp_path: Path) -> None:
    """Drivers record ends and die while two processes reconcile and two read."""
    runs = [started(tmp_path, f"job-{number}") for number in range(40)]
    locks = []
    for run in runs:
        held = files.hold(run.alive_path)
        assert held is not None
        locks.append(held)
    loops = [
        subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), role, str(len(runs))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for role in ("reconcile", "reconcile", "read", "read")
    ]  # fmt: skip
    try:
        for loop in loops:
            assert loop.stdout and loop.stdout.readline() == "ready\n"
        for loop in loops:
            assert loop.stdin
            loop.stdin.write("\n")
            loop.stdin.flush()
        for number, (run, held) in enumerate(zip(runs, locks, strict=True)):
            if number % 4 == 0:
                run.writer("coordinator-1").append(AttemptFinished(1, Outcome.of(None)))
            if number % 4 == 1:
                run.record_end(Finished(Outcome.of(None)))
            if number % 4 == 2:
                run.request_stop("enough")
            os.close(held)
        answers = [loop.communicate(timeout=120) for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
    assert [error for _, error in answers] == [""] * 4
    assert len({out for out, _ in answers}) == 1, "all saw the same ends"
    wanted = [RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.STOPPED, RunState.LOST]
    for number, run in enumerate(runs):
        assert summarise(run).state is wanted[number % 4], run.id
        assert len(list(run.events_folder.glob("*end*"))) == 1
