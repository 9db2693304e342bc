"""The same scripts that know nothing of Trainshed, on the nodes of a real Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from slurm_site import Site

sys.path.insert(0, str(Path(__file__).parents[1] / "field"))

from stranger_jobs import STRANGERS, cases, check

from support import ENVIRONMENTS
from trainshed.runs.states import RunState
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm, pytest.mark.real, pytest.mark.field, pytest.mark.timeout(600)]

# What differs from virtual nodes: addresses, ports and Slurm's own variables, of a world larger than a node. Those
# who read Slurm's variables are here; other frameworks' own variables are shown by the examples that run on Slurm.
FEW = {
    "ddp": ("2x2",),
    "accelerate": ("2x2",),
    "deepspeed": ("2x2",),
    "keras": ("2x2",),
    "parameter-servers": ("4x1",),
}


@pytest.mark.parametrize(("name", "shape"), cases(FEW))
def test_it_trains_to_its_end_on_slurm(name: str, shape: str, site: Site) -> None:
    stranger = STRANGERS[name]
    if not (ENVIRONMENTS / stranger.environment / "bin" / "python").exists():
        pytest.skip(f"trainshed env create {stranger.environment}")
    run = site.submit(load_job(stranger.job(name, shape)))
    ended = site.wait(run, 500)
    assert ended.state is RunState.SUCCEEDED, (ended.reason, site.driver_log(run))
    check(name, shape, "".join(log.read_text(errors="replace") for log in run.path.glob("node-*/*.log")))
