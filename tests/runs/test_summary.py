"""The state of a run follows from its events and from its engine's status, and from nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import made_run
from trainshed import files
from trainshed.access import StoreAccess
from trainshed.errors import UsageError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import (
    AttemptFinished,
    AttemptStarted,
    FailureSeen,
    Finished,
    Kind,
    Pending,
    PhaseFinished,
    RanksStarted,
    Stopping,
    StopRequested,
    Submitted,
)
from trainshed.runs.outcome import Failure, Outcome, describe_exit, exit_code_of
from trainshed.runs.reconciler import reconcile
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import EngineStatus, Summary, is_alive, phases, summarise

pytestmark = [pytest.mark.foundation, pytest.mark.core]
GONE = EngineStatus(alive=False)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return made_run(tmp_path)


def concluded(run: RunDirectory, status: EngineStatus = GONE) -> Summary:
    """The state after its processes are found to be gone."""
    reconcile(run, status, StoreAccess(run.home))
    return summarise(run)


def start(run: RunDirectory, attempt: int = 1) -> None:
    run.writer("driver-1").append(AttemptStarted(attempt))


@pytest.mark.parametrize("state", RunState)
def test_every_state_answers_every_question(state: RunState) -> None:
    assert isinstance(state.is_final, bool) and isinstance(state.exit_code, int) and state.meaning
    assert (state.exit_code == 0) == (state is RunState.SUCCEEDED)


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_says_whether_to_try_again(cause: Cause) -> None:
    assert isinstance(cause.is_retried, bool)


def test_a_living_run_is_what_its_last_event_says(run: RunDirectory) -> None:
    coordinator = run.writer("coordinator-1")
    assert summarise(run).state is RunState.PENDING
    start(run)
    assert summarise(run).state is RunState.PREPARING
    coordinator.append(RanksStarted(1))
    assert summarise(run).state is RunState.RUNNING
    run.request_stop("enough")
    assert (summarise(run).state, summarise(run).reason) == (RunState.STOPPING, "enough")
    coordinator.append(AttemptFinished(1, Outcome.of(None)))
    assert not summarise(run).state.is_final, "the driver has not said so yet"


def test_signs_of_life_are_locks_of_driver_and_agents(run: RunDirectory) -> None:
    assert not is_alive(run)
    run.node(1).mkdir()
    for path in (run.alive_path, run.node(1) / "alive.lock"):
        held = files.hold(path)
        assert held is not None and is_alive(run)
        os.close(held)
        assert not is_alive(run)


def test_a_later_attempt_waits_or_runs_by_its_own_events(run: RunDirectory) -> None:
    start(run)
    run.writer("coordinator-1").append(RanksStarted(1))
    run.writer("coordinator-1").append(Stopping(1, "its node failed"))
    assert (summarise(run).state, summarise(run).reason) == (RunState.STOPPING, "its node failed")
    run.writer("reconciler").append(Pending("waits for nodes", 1))
    assert (summarise(run).state, summarise(run).reason) == (RunState.PENDING, "waits for nodes")
    run.writer("driver-2").append(AttemptStarted(2))
    assert (summarise(run).state, summarise(run).attempt) == (RunState.PREPARING, 2)


def test_an_engines_status_explains_and_never_ends_a_run(run: RunDirectory) -> None:
    start(run)
    waiting = summarise(run, EngineStatus(waiting="behind job 7"))
    doubtful = summarise(run, EngineStatus(problem="out of reach"))
    assert (waiting.state, waiting.reason) == (RunState.PREPARING, "behind job 7")
    assert doubtful.state is RunState.PREPARING and "not known now: out of reach" in doubtful.reason
    assert not summarise(run, GONE).state.is_final, "only a recorded end is one"


def test_a_run_whose_processes_are_gone_without_a_word_is_lost(run: RunDirectory) -> None:
    start(run)
    run.writer("coordinator-1").append(RanksStarted(1))
    summary = concluded(run)
    assert summary.state is RunState.LOST and summary.exit_code == 70
    assert "last seen running" in summary.reason


def test_when_the_driver_dies_the_coordinators_word_counts(run: RunDirectory) -> None:
    start(run)
    failure = Failure(
        Cause.RANK, "rank 0 exited with 3", node=0, process="rank-0", exit_code=3, last_lines=("oh",)
    )
    run.writer("coordinator-1").append(AttemptFinished(1, Outcome.of(failure)))
    summary = concluded(run)
    assert (summary.state, summary.exit_code, summary.outcome) == (RunState.FAILED, 3, Outcome.of(failure))


def test_when_the_coordinator_dies_too_an_agents_word_counts(run: RunDirectory) -> None:
    start(run)
    run.node_writer(1, 1).append(FailureSeen(1, Failure(Cause.NODE, "node 0 was lost")))
    assert concluded(run).reason == "node 0 was lost"


def test_a_stop_that_was_requested_is_why_a_silent_run_ended(run: RunDirectory) -> None:
    start(run)
    run.request_stop("enough", "somebody")
    summary = concluded(run)
    assert (summary.state, summary.reason) == (RunState.STOPPED, "enough")


def test_the_engines_reason_counts_where_the_record_has_none(run: RunDirectory) -> None:
    start(run)
    taken = Failure(Cause.PREEMPTED, "a job of higher priority took its nodes")
    stopped = Failure(Cause.STOP, "node 0 was stopped by SIGTERM")
    run.writer("coordinator-1").append(AttemptFinished(1, Outcome.of(stopped)))
    assert concluded(run, EngineStatus(alive=False, failure=taken)).failure == taken


def test_failures_and_phases_of_an_earlier_attempt_do_not_count(run: RunDirectory) -> None:
    start(run)
    run.node(0).mkdir()
    failure = Failure(Cause.RANK, "the first attempt's")
    run.node_writer(0, 1).append(PhaseFinished(1, "fetch code", 7.0))
    run.node_writer(0, 1).append(FailureSeen(1, failure))
    run.writer("coordinator-1").append(AttemptFinished(1, Outcome.of(failure)))
    start(run, 2)
    run.node_writer(0, 2).append(PhaseFinished(2, "prepare", 1.0))
    assert concluded(run).state is RunState.LOST
    assert phases(run) == {0: {"prepare": 1.0}}


def test_of_several_failures_the_earliest_counts_not_the_first_nodes(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(run)
    for at, index in ((1000.0, 1), (1001.0, 0)):
        monkeypatch.setattr("trainshed.runs.events.time.time", lambda at=at: at)
        run.node_writer(index, 1).append(FailureSeen(1, Failure(Cause.NODE, f"node {index} says so")))
    assert concluded(run).reason == "node 1 says so"


def test_a_run_being_removed_is_neither_listed_nor_found(tmp_path: Path) -> None:
    runs = Runs.of(tmp_path)
    kept, gone = made_run(tmp_path, "kept"), made_run(tmp_path, "gone")
    gone.path.rename(runs.root / f".removed-{gone.id}")
    assert runs.all() == [kept] and runs.find("last") == kept
    runs.remove(kept)
    assert list(runs.root.iterdir()) == [], "what a killed removal left goes with the next"


def test_a_run_that_disappears_while_runs_are_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, kept = Runs.of(tmp_path), made_run(tmp_path, "kept")
    gone = RunDirectory(runs.root / "gone-meanwhile")
    monkeypatch.setattr(Runs, "each", lambda _: iter([kept, gone]))
    assert runs.all() == [kept]


def test_a_run_that_is_being_made_is_not_there_yet(tmp_path: Path) -> None:
    runs, kept = Runs.of(tmp_path), made_run(tmp_path, "kept")
    runs.create("unmade")
    assert runs.all() == [kept] and runs.find("last") == kept
    with pytest.raises(UsageError, match="no such run: 'unmade'"):
        runs.find("unmade")


def test_a_final_state_never_changes_again(run: RunDirectory) -> None:
    assert run.record_end(Finished(Outcome.of(None), name="job"))
    run.request_stop("late")
    start(run, 2)
    run.writer("reconciler").append(Pending("late"))
    assert not run.record_end(Finished(Outcome.of(Failure(Cause.RANK, "later"))))
    reconcile(run, GONE, StoreAccess(run.home))
    assert summarise(run, GONE).state is RunState.SUCCEEDED


def test_a_torn_last_line_is_skipped_and_does_not_spoil_the_next(run: RunDirectory) -> None:
    with (run.events_folder / "driver-1.jsonl").open("a") as stream:
        stream.write('{"v": 1, "time": 1, "kind": "att')
    start(run)
    assert [event.kind for event in run.events()] == [Kind.SUBMITTED, Kind.ATTEMPT]


def test_lines_that_a_killed_writer_spoilt_are_no_obstacle(run: RunDirectory) -> None:
    with (run.events_folder / "driver-1.jsonl").open("ab") as stream:
        stream.write(b"\x00\n\n   \n\xff\xfe\n")
    start(run)
    assert [event.kind for event in run.events()] == [Kind.SUBMITTED, Kind.ATTEMPT]


def test_exit_codes_and_words_of_signals() -> None:
    assert (exit_code_of(3), exit_code_of(-9)) == (3, 137)
    assert (describe_exit(3), describe_exit(-9)) == ("exited with 3", "was killed by SIGKILL")


def test_runs_are_found_by_the_beginning_of_their_id(tmp_path: Path) -> None:
    first = made_run(tmp_path, "alpha")
    second = made_run(tmp_path, "beta")
    runs = Runs.of(tmp_path)
    assert runs.find("alp") == first and runs.find("last") == second and runs.find(first.id) == first


@pytest.mark.parametrize("text", ["../etc", "/etc", "", ".hidden", "a/b"])
def test_a_run_id_never_leads_out_of_the_home(tmp_path: Path, text: str) -> None:
    for outside in ("etc", "runs/.hidden", "runs/a/b"):
        (tmp_path / outside).mkdir(parents=True)
        RunDirectory(tmp_path / outside).writer("submit").append(Submitted("x", "local", "1x1"))
    with pytest.raises(UsageError, match="invalid run id"):
        Runs.of(tmp_path).find(text)


def test_every_stop_request_is_kept_and_the_first_is_the_reason(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, reason, user in ((1000.0, "first", "ann"), (1001.0, "second", "bob")):
        monkeypatch.setattr("trainshed.runs.events.time.time", lambda at=at: at)
        run.request_stop(reason, user)
    assert set(run.stop_requests()) == {StopRequested("first", "ann"), StopRequested("second", "bob")}
    assert run.stop_reason() == "first"
