"""A home that its contract keeps, on a real Slurm whose nodes share Trainshed's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from slurm_site import Site

from trainshed.runs.states import RunState

pytestmark = [pytest.mark.slurm, pytest.mark.field, pytest.mark.real]

SCRIPT = """
import os, pathlib
folder = pathlib.Path.home() / "checkpoints"
folder.mkdir(exist_ok=True)
(folder / os.environ["DLWS_ROLE_IDX"]).write_text(os.environ["DLWS_JOB_ID"])
print((pathlib.Path.home() / "ib_config").read_text(), flush=True)
"""


def test_what_both_nodes_left_in_the_home_lies_in_the_shared_folder(site: Site) -> None:
    run = site.submit(site.job(SCRIPT, contract="apulis"))
    ended = site.wait(run, 200)
    assert ended.state is RunState.SUCCEEDED, (ended.reason, site.driver_log(run))
    (kept,) = {Path(node["kept_home"]) for node in run.plan_json()["nodes"]}
    assert kept.parent == Path(os.environ["TRAINSHED_HOME"]) / "homes"
    assert {path.name: path.read_text() for path in (kept / "checkpoints").iterdir()} == {
        "0": run.id,
        "1": run.id,
    }
