"""A benchmark on a real Slurm: three runs with different seeds, scored, checked, reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from slurm_site import Site

from support import ROOT
from trainshed.runs.directory import RunDirectory

pytestmark = [pytest.mark.slurm, pytest.mark.real]
TRAINSHED = [sys.executable, "-m", "trainshed.cli.main", "bench"]


def any_spread(source: Path, target: Path) -> Path:
    """The workload at its tiny scale, however unsteady a busy machine is."""
    raw = yaml.safe_load((source / "workload.yaml").read_text())
    for implementation in raw["implementations"].values():
        implementation["code"] = str(source / implementation["code"])
    tiny = raw["scales"]["tiny"] | {"max_spread": 100, "max_interval": 100}
    tiny["dataset"]["maker"] = str(source / tiny["dataset"]["maker"])
    target.mkdir()
    (target / "workload.yaml").write_text(yaml.safe_dump(raw | {"scales": {"tiny": tiny}}))
    return target


def test_a_benchmark_of_three_runs_gives_a_result_that_holds(site: Site) -> None:
    out = site.folder / "result"
    workload = any_spread(ROOT / "workloads" / "resnet50", site.folder / "workload")
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
    engines = [RunDirectory(out / run["folder"]).submission().engine for run in result["runs"]]
    assert engines == ["slurm"] * 3
    checked = subprocess.run([*TRAINSHED, "check", str(out)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
