"""Every workload trains for real, and its throughput agrees with a clock outside the meter.

The harness follows rank 0's log from another process and takes its own time of
every printed step and evaluation. It shares nothing with the meter.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainshed.bench.check import check
from trainshed.bench.folder import load_session
from trainshed.bench.result import number
from trainshed.environments import catalog

pytestmark = [pytest.mark.benchmark, pytest.mark.real]
ROOT = Path(__file__).parents[3]
STEP = re.compile(r"^step (\d+)/(\d+) ")
EPOCH = re.compile(r"^epoch (\d+) accuracy=")
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


def logging_every_step(source: Path, target: Path, framework: str) -> Path:
    """The tiny scale as it is, but printing each step, on one node with two ranks, and short."""
    raw: dict[str, Any] = yaml.safe_load((source / "workload.yaml").read_text())
    code = raw["implementations"][framework]
    code["code"] = str(source / code["code"])
    tiny = raw["scales"]["tiny"]
    tiny["dataset"]["folder"] = str((source / tiny["dataset"]["folder"]).resolve())
    tiny["dataset"]["maker"] = str(source / tiny["dataset"]["maker"])
    tiny["parameters"] |= {"log_every": 1, "epochs": 2}
    tiny |= {"shape": "1x2", "runs": 1, "target": {"value": 0.0}, "min_steps": 30}
    raw |= {"implementations": {framework: code}, "scales": {"tiny": tiny}}
    target.mkdir()
    (target / "workload.yaml").write_text(yaml.safe_dump(raw))
    return target


def follow(child: subprocess.Popen[bytes], result: Path) -> tuple[dict[int, float], dict[int, float]]:
    """When each step and each evaluation was printed, by this process's clock."""
    steps: dict[int, float] = {}
    epochs: dict[int, float] = {}
    log, stream, rest = None, None, ""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        running = child.poll() is None
        if log is None and (result / "session.json").exists() and any(runs := load_session(result).runs):
            log = Path(runs[0]) / "node-0/rank-0.log"
        if stream is None and log is not None and log.exists():
            stream = log.open()
        if stream is not None:
            text, now = stream.read(), time.monotonic()
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                if match := STEP.match(line):
                    steps[int(match.group(1))] = now
                elif match := EPOCH.match(line):
                    epochs[int(match.group(1))] = now
        if not running:
            return steps, epochs
        time.sleep(0.002)
    child.kill()
    raise AssertionError(f"no end within {LIMIT_SECONDS} s")


@pytest.mark.timeout(320)
@pytest.mark.parametrize(("name", "framework"), CASES)
def test_reported_throughput_is_within_one_percent_of_an_outside_clock(
    name: str, framework: str, tmp_path: Path
) -> None:
    catalog.resolve(framework)  # it says how to make it
    workload = logging_every_step(ROOT / "workloads" / name, tmp_path / "workload", framework)
    result = tmp_path / "result"
    env = {
        **os.environ,
        "TRAINSHED_HOME": str(tmp_path / "home"),
        "TRAINSHED_ENVS": str(catalog.environments_directory()),
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
    child = subprocess.Popen(command, env=env)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)  # the harness must not be late where it shares the processor
        steps, epochs = follow(child, result)
    finally:
        child.kill()
        os.setpriority(os.PRIO_PROCESS, 0, before)
    checked = check(result)
    assert checked.findings == [] and checked.result is not None
    assert child.returncode == 0
    run = checked.result.runs[0]
    assert run.window is not None
    first, last = run.window.warmup_steps, max(steps)
    per_epoch = last // 2
    evaluation = epochs[1] - steps[per_epoch]
    seconds = steps[last] - steps[first] - evaluation
    batch = run.settings["global_batch_size"]
    outside = (last - first) * batch / seconds
    reported = number(run.throughput)
    assert reported is not None
    print(
        f"{name} {framework}: reported {reported:.2f}, outside {outside:.2f} ({reported / outside - 1:+.3%})"
    )
    assert abs(reported / outside - 1) < 0.01
