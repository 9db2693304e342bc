"""What a dry run printed is what is launched, or refused whole (on Slurm: tests/real/slurm/test_slurm_view.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plan_comparison import DECIDED_LATER, assert_same_plan
from trainshed import Client
from trainshed.errors import RefusedError
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.foundation, pytest.mark.core]


def test_a_local_run_carries_out_the_plan_that_was_printed(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/main.py").write_text("import os; print('rank', os.environ['RANK'])")
    client = Client(tmp_path / "home")
    request = client.request(
        {"name": "job", "code": str(tmp_path / "code"), "entry": "main.py", "launcher": "pytorch"},
        shape="2x2",
        priority=7,
    )
    printed = client.plan(request)
    assert printed.is_final and not list((tmp_path / "home").rglob("*.json"))
    (run,) = client.start(request)
    assert run.wait(60).state is RunState.SUCCEEDED
    names, launched = ("job-preview", run.id), run.directory.plan_json()
    assert_same_plan(json.loads(json.dumps(printed.plan.to_json())), launched, names, DECIDED_LATER)
    assert launched["notes"] == list(printed.plan.notes), "also what has no effect is said in both"
    assert [line.text for line in run.logs(rank=3)] == ["rank 3"]


@pytest.mark.field
def test_a_target_that_cannot_be_made_is_refused_with_its_field(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    client = Client(tmp_path / "home")
    outputs = [{"name": "model", "target": str(tmp_path / "file/below")}]
    with pytest.raises(RefusedError, match=r"outputs\.0\.target is .*/file/below'.* cannot be made"):
        client.submit({"name": "job", "command": "true", "outputs": outputs})
    assert not list(client.summaries()), "nothing is left behind"
