"""The state of a run follows from its events and from who still lives, and from nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainshed.errors import UsageError
from trainshed.runs import events, locks
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Kind
from trainshed.runs.outcome import Failure, Outcome, exit_code_of, words_of
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import phases, summarise

pytestmark = [pytest.mark.foundation]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = Runs(tmp_path / "runs").create("job")
    made.append(Kind.SUBMITTED, name="job", engine="local", shape="1x1")
    return made


@pytest.mark.parametrize("state", RunState)
def test_every_state_answers_every_question(state: RunState) -> None:
    assert isinstance(state.is_final, bool) and isinstance(state.exit_code, int) and state.meaning
    assert (state.exit_code == 0) == (state is RunState.SUCCEEDED)


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_says_whether_to_try_again(cause: Cause) -> None:
    assert isinstance(cause.is_retried, bool)


def test_a_living_run_is_what_its_last_event_says(run: RunDirectory) -> None:
    held = locks.hold(run.alive_path)
    assert held is not None
    assert summarise(run).state is RunState.PENDING
    run.append(Kind.ATTEMPT, attempt=1)
    assert summarise(run).state is RunState.PREPARING
    run.append(Kind.RUNNING)
    assert summarise(run).state is RunState.RUNNING
    run.append(Kind.STOP_REQUESTED, reason="enough")
    assert (summarise(run).state, summarise(run).reason) == (RunState.STOPPING, "enough")
    run.append(Kind.ATTEMPT_FINISHED, **Outcome.of(None).to_json())
    assert not summarise(run).state.is_final, "the driver has not said so yet"
    os.close(held)


def test_a_run_whose_processes_are_gone_without_a_word_is_lost(run: RunDirectory) -> None:
    run.append(Kind.ATTEMPT, attempt=1)
    run.append(Kind.RUNNING)
    summary = summarise(run)
    assert summary.state is RunState.LOST and summary.exit_code == 70
    assert "last seen running" in summary.reason


def test_when_the_driver_dies_the_coordinators_word_counts(run: RunDirectory) -> None:
    run.append(Kind.ATTEMPT, attempt=1)
    failure = Failure(
        Cause.RANK, "rank 0 exited with 3", node=0, process="rank-0", exit_code=3, last_lines=("oh",)
    )
    run.append(Kind.ATTEMPT_FINISHED, **Outcome.of(failure).to_json())
    summary = summarise(run)
    assert (summary.state, summary.exit_code, summary.outcome) == (RunState.FAILED, 3, Outcome.of(failure))


def test_when_the_coordinator_dies_too_an_agents_word_counts(run: RunDirectory) -> None:
    run.append(Kind.ATTEMPT, attempt=1)
    run.node(1).mkdir()
    events.append(
        run.node(1) / "events.jsonl", Kind.FAILURE, **Failure(Cause.NODE, "node 0 was lost").to_json()
    )
    assert summarise(run).reason == "node 0 was lost"


def test_failures_and_phases_of_an_earlier_attempt_do_not_count(run: RunDirectory) -> None:
    run.append(Kind.ATTEMPT, attempt=1)
    run.node(0).mkdir()
    record = run.node_events_path(0)
    events.append(record, Kind.PHASE, phase="fetch code", seconds=7.0)
    events.append(record, Kind.FAILURE, **Failure(Cause.RANK, "the first attempt's").to_json())
    run.append(Kind.ATTEMPT_FINISHED, **Outcome.of(Failure(Cause.RANK, "the first attempt's")).to_json())
    time.sleep(0.001)
    run.append(Kind.ATTEMPT, attempt=2)
    events.append(record, Kind.PHASE, phase="prepare", seconds=1.0)
    assert summarise(run).state is RunState.LOST
    assert phases(run) == {0: {"prepare": 1.0}}


def test_of_several_failures_the_earliest_counts_not_the_first_nodes(run: RunDirectory) -> None:
    run.append(Kind.ATTEMPT, attempt=1)
    for index in (1, 0):
        run.node(index).mkdir()
        failure = Failure(Cause.NODE, f"node {index} says so")
        events.append(run.node_events_path(index), Kind.FAILURE, **failure.to_json())
        time.sleep(0.001)
    assert summarise(run).reason == "node 1 says so"


def test_a_run_being_removed_is_neither_listed_nor_found(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    kept, gone = runs.create("kept"), runs.create("gone")
    for item in (kept, gone):
        item.append(Kind.SUBMITTED, name="x")
    gone.path.rename(tmp_path / f".removed-{gone.id}")
    assert runs.all() == [kept] and runs.find("last") == kept
    runs.remove(kept)
    assert list(tmp_path.iterdir()) == [], "what a killed removal left goes with the next"


def test_a_run_that_disappears_while_runs_are_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path)
    kept = runs.create("kept")
    kept.append(Kind.SUBMITTED, name="x")
    listed = [kept.path, tmp_path / "gone-meanwhile"]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    monkeypatch.setattr(Path, "exists", lambda _: True)  # as it was a moment ago
    assert runs.all() == [kept]


def test_a_final_state_never_changes_again(run: RunDirectory) -> None:
    run.append(Kind.FINISHED, **Outcome.of(None).to_json())
    run.append(Kind.STOP_REQUESTED, reason="late")
    assert summarise(run).state is RunState.SUCCEEDED


def test_a_torn_last_line_is_skipped_and_does_not_spoil_the_next(run: RunDirectory) -> None:
    with run.events_path.open("a") as stream:
        stream.write('{"time": 1, "kind": "runn')
    run.append(Kind.RUNNING)
    assert [event.kind for event in run.events()] == [Kind.SUBMITTED, Kind.RUNNING]


def test_unknown_and_broken_lines_are_no_obstacle(run: RunDirectory) -> None:
    with run.events_path.open("a") as stream:
        stream.write(
            '{"time": 1, "kind": "from-the-future"}\n[]\nnull\n\x00\n{"time": "x", "kind": "running"}\n'
        )
    run.append(Kind.RUNNING)
    assert [event.kind for event in run.events()] == [Kind.SUBMITTED, Kind.RUNNING]


def test_exit_codes_and_words_of_signals() -> None:
    assert (exit_code_of(3), exit_code_of(-9)) == (3, 137)
    assert (words_of(3), words_of(-9)) == ("exited with 3", "was killed by SIGKILL")


def test_runs_are_found_by_the_beginning_of_their_id(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    first, second = runs.create("alpha"), runs.create("beta")
    for item in (first, second):
        item.append(Kind.SUBMITTED, name="x")
    assert runs.find("alp") == first and runs.find("last") == second and runs.find(first.id) == first


@pytest.mark.parametrize("text", ["../etc", "/etc", "", ".hidden", "a/b"])
def test_a_run_id_never_leads_out_of_the_home(tmp_path: Path, text: str) -> None:
    for outside in ("etc", "runs/.hidden", "runs/a/b"):
        (tmp_path / outside).mkdir(parents=True)
        RunDirectory(tmp_path / outside).append(Kind.SUBMITTED, name="x")
    with pytest.raises(UsageError, match="is no run id"):
        Runs(tmp_path / "runs").find(text)
