"""A run is noted before it starts, so that a kill at any moment leaves one that `collect` finds or names."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import made
import pytest

from trainshed.api import Client, Run
from trainshed.bench.folder import LABEL, load_session
from trainshed.bench.run import runner, template, workload
from trainshed.engines.base import Request
from trainshed.runs.directory import RunDirectory, Runs, finished
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause
from trainshed.spec.load import dump_job

pytestmark = [pytest.mark.benchmark]


Happening = Callable[[], None] | None


class Killed(BaseException):
    """Stands in for the end of this process."""


class MakingClient(Client):
    """Makes runs instead of starting them, and is interrupted where a test says so."""

    def __init__(self, home: Path, target: Path, before: Happening = None, after: Happening = None) -> None:
        super().__init__(home)
        self.target, self.before, self.after = target, before, after
        self.states: list[str] = ["succeeded"]
        """Of the runs, in order; the last one for all that follow."""
        self.stopped: list[str] = []
        self.noted = -1

    def start(self, request: Request, engine: str = "local", ids: Sequence[str] = ()) -> list[Run]:
        self.noted = len(load_session(self.target).runs)
        if self.before:
            self.before()
        (run,) = Runs.of(self.home).create(request.job.name)
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        label, seed = request.labels[LABEL], request.job.parameters["seed"]
        made.MadeRun(label=label, seed=seed, state=state, at=60.0 * self.noted, run_id=run.id).write(run.path)
        run.write("job.yaml", dump_job(request.job))
        if self.after:
            self.after()
        return [Run(self, run)]

    def stop(self, run: Run, reason: str) -> None:
        self.stopped.append(run.id)
        (run.directory.events_folder / "end.jsonl").unlink()
        outcome = Outcome.of(Failure(Cause.STOP, reason))
        run.directory.record_end(finished(run.directory, outcome, None, 1))


def end() -> None:
    raise Killed


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def bench(tmp_path: Path) -> workload.Bench:
    template.make(tmp_path / "my-model", "command")
    return workload.choose(tmp_path / "my-model", shape="2x2", runs=3, home=tmp_path / "home")


def client_of(tmp_path: Path, **happenings: Happening) -> MakingClient:
    return MakingClient(tmp_path / "home", tmp_path / "result", **happenings)


def all_runs(client: Client) -> list[RunDirectory]:
    return Runs.of(client.home).all()


def test_a_run_that_started_just_before_the_kill_is_found(tmp_path: Path, bench: workload.Bench) -> None:
    client = client_of(tmp_path, after=end)
    with pytest.raises(Killed):
        runner.run(client, bench, client.target, lambda text: None)
    assert client.noted == 1 and load_session(client.target).runs == [""]
    result = runner.collect(client, client.target)
    (run,) = all_runs(client)
    assert load_session(client.target).runs == [str(run.path)]
    assert len(result.runs[0].ranks) == 4


def test_a_run_that_never_started_is_named(tmp_path: Path, bench: workload.Bench) -> None:
    client = client_of(tmp_path, before=end)
    with pytest.raises(Killed):
        runner.run(client, bench, client.target, lambda text: None)
    result = runner.collect(client, client.target)
    assert [r.code for r in result.runs[0].reasons][:1] == ["run-missing"]


def test_a_signal_during_submission_stops_the_run_that_came_of_it(
    tmp_path: Path, bench: workload.Bench
) -> None:
    client = client_of(tmp_path, after=interrupt)
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run(client, bench, client.target, lambda text: None)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert client.stopped == [run.id for run in all_runs(client)] != []


def _raise(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.field
def test_a_failed_run_is_the_last_one_and_its_rank_speaks(tmp_path: Path, bench: workload.Bench) -> None:
    client, told = client_of(tmp_path), list[str]()
    client.states = ["succeeded", "failed", "succeeded"]
    result = runner.run(client, bench, client.target, told.append)
    assert len(all_runs(client)) == 2 and result.status == "failed"
    text = "\n".join(told)
    assert "rank-0 exited with 1" in text and "ValueError: no such <b>file</b>" in text
    assert "node-0/rank-0.log" in text and "would fail as well: 1 run" in text
    assert any("run 2: the run ended as 'failed': rank-0 exited with 1" in r.message for r in result.reasons)
    report = (client.target / "report.html").read_text()
    assert "ValueError: no such &lt;b&gt;file&lt;/b&gt;" in report and "runs/2/node-0/rank-0.log" in report
    assert "ValueError: no such &lt;b&gt;file&lt;/b&gt;" in (client.target / "report.md").read_text()
