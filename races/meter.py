"""The throughput that a benchmark reports, against a stopwatch that shares nothing with the meter.

The race follows rank 0's log from another process and takes its own time of
every printed step and evaluation. A side's "seconds" are the larger of the two
throughputs divided by the smaller: ours is 1 when the meter is right, so the
ratio says how far reported and measured throughput agree.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from races.harness import ROOT, Race

STEP = re.compile(r"^step (\d+)/(\d+) ", re.M)
EPOCH = re.compile(r"^epoch (\d+) accuracy=")
LIMIT_SECONDS = 280
CASES = [("resnet50", "pytorch"), ("resnet50", "mindspore"), ("resnet50", "paddle"), ("bert", "mindspore")]


def logging_every_step(source: Path, target: Path, framework: str) -> Path:
    """The tiny scale as it is, but printing each step, on one node with two ranks, and short."""
    raw: dict[str, Any] = yaml.safe_load((source / "workload.yaml").read_text())
    code = raw["implementations"][framework]
    code["code"] = str(source / code["code"])
    tiny = raw["scales"]["tiny"]
    tiny["dataset"]["maker"] = str(source / tiny["dataset"]["maker"])
    tiny["parameters"] |= {"log_every": 1, "epochs": 2}
    tiny |= {"shape": "1x2", "runs": 1, "target": {"value": 0.0}, "min_steps": 30}
    raw |= {"implementations": {framework: code}, "scales": {"tiny": tiny}}
    target.mkdir()
    (target / "workload.yaml").write_text(yaml.safe_dump(raw))
    return target


def _follow(child: subprocess.Popen[bytes], result: Path) -> tuple[dict[int, float], dict[int, float]]:
    """When each step and each evaluation was printed, by this process's clock."""
    from trainshed.bench.folder import load_session

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
    raise RuntimeError(f"no end within {LIMIT_SECONDS} s")


def _agreement(name: str, framework: str) -> Callable[[Path], float]:
    def side(work: Path) -> float:
        from trainshed.bench.judge.check import check
        from trainshed.bench.result import number

        folder = work / f"{time.monotonic_ns()}"
        folder.mkdir()
        workload = logging_every_step(ROOT / "workloads" / name, folder / "workload", framework)
        result = folder / "result"
        command = [sys.executable, "-m", "trainshed.cli.main", "bench", "run", str(workload)]
        env = {**os.environ, "TRAINSHED_HOME": str(folder / "home")}
        child = subprocess.Popen([*command, "--out", str(result)], env=env, stdout=subprocess.DEVNULL)
        try:
            steps, epochs = _follow(child, result)
        finally:
            child.kill()
            child.wait()
        found = check(result).result
        if child.returncode != 0 or found is None or found.runs[0].window is None:
            raise RuntimeError(f"the benchmark did not give a result: {result}")
        run = found.runs[0]
        first, last = run.window.warmup_steps, max(steps)
        evaluation = epochs[1] - steps[last // 2]
        outside = (
            (last - first) * run.settings["global_batch_size"] / (steps[last] - steps[first] - evaluation)
        )
        reported = number(run.throughput)
        if reported is None:
            raise RuntimeError("no throughput was measured")
        return max(reported / outside, outside / reported)

    return side


RACES = [
    Race(
        f"meter-{name}-{framework}",
        _agreement(name, framework),
        {"stopwatch": lambda _: 1.0},
        rounds=1,
        least=0.99,
    )
    for name, framework in CASES
]
