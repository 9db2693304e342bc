"""A run on its way to Slurm is not lost, and one that Slurm refuses leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainshed import Client, Run
from trainshed.engines.slurm import engine as slurm
from trainshed.engines.slurm.client import Slurm
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.errors import RefusedError, TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.slurm, pytest.mark.core]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose controller has no job and answers at once."""
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINSHED_PROFILE", raising=False)
    monkeypatch.setattr(Slurm, "jobs", lambda _self: [])
    monkeypatch.setattr(Slurm, "accounted", lambda _self, _jobs: {})
    return tmp_path / "home"


def _submit(**options: str) -> Run:
    return Client().submit({"name": "job", "command": "true"}, engine="slurm", options=options)


def test_a_run_is_not_lost_while_sbatch_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[RunState, str]] = []

    def sbatch(_self: Slurm, *_rest: Any) -> str:
        found = Client().get("last").refresh()
        seen.append((found.state, found.reason))
        return "7"

    monkeypatch.setattr(Slurm, "submit", sbatch)
    run = _submit()
    assert seen == [(RunState.PENDING, "it is being submitted")]
    assert run.state is RunState.LOST, "Slurm took it and knows nothing of it any more"


def test_a_submission_that_died_is_lost_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slurm, "submit", lambda _self, *_rest: "7")
    run = _submit()
    first = json.loads((run.path / "events/submit.jsonl").read_text().splitlines()[0])
    first["time"] -= slurm._SUBMITTING + 1
    (run.path / "events/submit.jsonl").write_text(json.dumps(first) + "\n")
    assert [event.kind for event in run.events()] == [Kind.SUBMITTED]
    assert run.state is RunState.LOST


def test_the_first_error_is_told_and_every_folder_goes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: Slurm, *_rest: Any) -> str:
        raise RefusedError("no such partition", "name another")

    def fail(_self: SlurmEngine, _run: RunDirectory) -> None:
        raise TrainshedError("the store is gone", "")

    monkeypatch.setattr(Slurm, "submit", refuse)
    monkeypatch.setattr(SlurmEngine, "forget", fail)
    with pytest.raises(RefusedError, match="no such partition"):
        _submit(array="3")
    assert not list((home / "runs").iterdir())


def test_what_has_no_effect_in_slurms_queue_is_noted_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slurm, "submit", lambda _self, *_rest: "7")
    job = {"name": "job", "command": "true", "priority": 200, "preemptible": True}
    notes = Client().submit(job, engine="slurm").directory.notes()
    assert [note.split()[0] for note in notes] == ["priority", "preemptible:"]
