"""Every workload trains for real: its result is valid, and its meter counted the steps that the script printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from races.meter import STEP, logging_every_step

from support import ROOT
from trainshed.bench.folder import load_session
from trainshed.bench.judge.check import check
from trainshed.bench.result import number
from trainshed.environments import catalog

pytestmark = [pytest.mark.benchmark, pytest.mark.real]
LIMIT_SECONDS = 280

CASES = [
    ("resnet50", "pytorch"), ("resnet50", "mindspore"), ("resnet50", "paddle"), ("bert", "mindspore"),
    ("mnist-horovod", "horovod"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout's own environments, where nothing else is said."""
    if "TRAINSHED_ENVS" not in os.environ and (ROOT / ".envs").is_dir():
        monkeypatch.setenv("TRAINSHED_ENVS", str(ROOT / ".envs"))


@pytest.mark.timeout(320)
@pytest.mark.parametrize(("name", "framework"), CASES)
def test_a_workload_gives_a_valid_result_with_every_step_counted(
    name: str, framework: str, tmp_path: Path
) -> None:
    catalog.resolve(framework, os.environ)  # it says how to make it
    workload = logging_every_step(ROOT / "workloads" / name, tmp_path / "workload", framework)
    result = tmp_path / "result"
    env = {
        **os.environ,
        "TRAINSHED_HOME": str(tmp_path / "home"),
        "TRAINSHED_ENVS": str(catalog.environments_directory(os.environ)),
    }
    command = [
        sys.executable,
        "-m",
        "trainshed.cli.main",
        "bench",
        "run",
        str(workload),
        "--out",
        str(result),
    ]
    done = subprocess.run(command, env=env, timeout=LIMIT_SECONDS)
    checked = check(result)
    assert checked.findings == [] and checked.result is not None
    assert done.returncode == 0
    run = checked.result.runs[0]
    assert run.window is not None and number(run.throughput)
    (folder,) = load_session(result).runs
    printed = [int(m[1]) for m in re.finditer(STEP, (Path(folder) / "node-0/rank-0.log").read_text())]
    assert printed == list(range(1, len(printed) + 1))
    assert run.window.warmup_steps + run.window.steps == len(printed)
