"""A run on its way to Slurm is not lost, and one that Slurm refuses leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainshed.engines._asking import state_of
from trainshed.engines.base import Request
from trainshed.engines.slurm import engine as slurm
from trainshed.engines.slurm.client import Slurm
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.errors import RefusedError, TrainshedError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Kind
from trainshed.runs.states import RunState
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm]


@pytest.fixture(autouse=True)
def _quiet_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that has no job and answers at once."""
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(Slurm, "jobs", lambda _self: [])
    monkeypatch.setattr(Slurm, "accounted", lambda _self, _job: "")


def _submit(**options: str) -> RunDirectory:
    return SlurmEngine().submit(Request(load_job({"name": "job", "command": "true"}), options=options))


def test_a_run_is_not_lost_while_sbatch_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[RunState, str]] = []

    def sbatch(_self: Slurm, *_rest: Any) -> str:
        found = state_of(Runs.default().find("last"))
        seen.append((found.state, found.reason))
        return "7"

    monkeypatch.setattr(Slurm, "submit", sbatch)
    run = _submit()
    assert seen == [(RunState.PENDING, "it is being submitted")]
    assert state_of(run).state is RunState.LOST, "Slurm took it and knows nothing of it any more"


def test_a_submission_that_died_is_lost_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slurm, "submit", lambda _self, *_rest: "7")
    run = _submit()
    first = json.loads(run.events_path.read_text().splitlines()[0])
    first["time"] -= slurm._SUBMITTING + 1
    run.write("events.jsonl", json.dumps(first) + "\n")
    assert [event.kind for event in run.events()] == [Kind.SUBMITTED]
    assert state_of(run).state is RunState.LOST


def test_the_first_error_is_told_and_every_folder_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: Slurm, *_rest: Any) -> str:
        raise RefusedError("no such partition", "name another")

    def fail(_self: SlurmEngine, _run: RunDirectory) -> None:
        raise TrainshedError("the store is gone", "")

    monkeypatch.setattr(Slurm, "submit", refuse)
    monkeypatch.setattr(SlurmEngine, "forget", fail)
    with pytest.raises(RefusedError, match="no such partition"):
        _submit(array="3")
    assert not list(Runs.default().root.iterdir())
