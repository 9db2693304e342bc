"""A benchmark on a real Slurm: three runs with different seeds, scored, checked, reported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from slurm_site import Site

from support import ROOT
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind

pytestmark = [pytest.mark.slurm, pytest.mark.real]
TRAINSHED = [sys.executable, "-m", "trainshed.cli.main", "bench"]


def test_a_benchmark_of_three_runs_gives_a_result_that_holds(site: Site) -> None:
    out = site.folder / "result"
    workload = ROOT / "workloads" / "resnet50"
    words = [
        "run",
        workload,
        "-f",
        "pytorch",
        "-j",
        "2x2",
        "-n",
        "3",
        "--engine",
        "slurm",
        "--out",
        out,
        "--json",
    ]
    done = subprocess.run([*TRAINSHED, *map(str, words)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr + done.stdout
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "valid" and len(result["runs"]) == 3
    assert len({run["seed"] for run in result["runs"]}) == 3
    assert all(len(run["ranks"]) == 4 for run in result["runs"])
    engines = [
        event.data["engine"]
        for run in result["runs"]
        for event in RunDirectory(out / run["folder"]).events()
        if event.kind is Kind.SUBMITTED
    ]
    assert engines == ["slurm"] * 3
    checked = subprocess.run([*TRAINSHED, "check", str(out)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
