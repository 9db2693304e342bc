"""A run is noted before it starts, so that a kill at any moment leaves one that `collect` finds or names."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import made
import pytest

from trainshed import axes
from trainshed.bench import runner, template, workload
from trainshed.bench.folder import load_session
from trainshed.engines.base import Request
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Kind
from trainshed.spec.load import dump_job

pytestmark = [pytest.mark.benchmark]


Happening = Callable[[], None] | None


class Killed(BaseException):
    """Stands in for the end of this process."""


class Engine:
    """Submits, and is interrupted where a test says so."""

    def __init__(self, target: Path, before: Happening = None, after: Happening = None) -> None:
        self.target, self.before, self.after = target, before, after
        self.stopped: list[str] = []
        self.noted = -1

    def submit(self, request: Request) -> RunDirectory:
        self.noted = len(load_session(self.target).runs)
        if self.before:
            self.before()
        run = Runs.default().create(request.job.name)
        shutil.copytree(made.MadeRun().write(self.target.parent / "source"), run.path, dirs_exist_ok=True)
        run.write("job.yaml", dump_job(request.job))
        if self.after:
            self.after()
        return run

    def stop(self, run: RunDirectory, reason: str) -> None:
        self.stopped.append(run.id)
        run.append(Kind.FINISHED, state="stopped", reason=reason)


def end() -> None:
    raise Killed


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> workload.Bench:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    template.make(tmp_path / "my-model", "command")
    return workload.choose(tmp_path / "my-model", shape="2x2", runs=1)


def started(engine: Engine, bench: workload.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axes, "load", lambda axis, name: engine)
    runner.run(bench, engine.target, lambda text: None)


def test_a_run_that_started_just_before_the_kill_is_found(
    tmp_path: Path, bench: workload.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tmp_path / "result", after=end)
    with pytest.raises(Killed):
        started(engine, bench, monkeypatch)
    assert engine.noted == 1 and load_session(engine.target).runs == [""]
    result = runner.collect(engine.target)
    (run,) = Runs.default().all()
    assert load_session(engine.target).runs == [str(run.path)]
    assert len(result.runs[0].ranks) == 4


def test_a_run_that_never_started_is_named(
    tmp_path: Path, bench: workload.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tmp_path / "result", before=end)
    with pytest.raises(Killed):
        started(engine, bench, monkeypatch)
    result = runner.collect(engine.target)
    assert [r.code for r in result.runs[0].reasons][:1] == ["run-missing"]


def test_a_signal_during_submission_stops_the_run_that_came_of_it(
    tmp_path: Path, bench: workload.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tmp_path / "result", after=interrupt)
    with pytest.raises(KeyboardInterrupt):
        started(engine, bench, monkeypatch)
    assert engine.stopped == [run.id for run in Runs.default().all()] != []
