"""`trainshed ps -a` with 10,000 runs: at most a second of CPU, and the memory of a list of 100."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from resource import struct_rusage

from races.harness import Race, Side

MANY, FEW = 10_000, 100


def make_runs(work: Path) -> None:
    """Ended runs as they are on a disk, with the files that a list of them must not open."""
    for count in (MANY, FEW):
        for number in range(count):
            run = work / f"home-{count}" / "runs" / f"job-{number:05}"
            (run / "events").mkdir(parents=True)
            about = {"v": 1, "name": "job", "engine": "local", "shape": "2x2"}
            first = about | {"kind": "submitted", "time": 1e9 + number}
            end = about | {
                "kind": "finished", "time": 1.1e9 + number, "state": "succeeded", "exit_code": 0, "attempt": 1,
                "submitted": 1e9 + number, "started": 1e9 + number + 2,
            }  # fmt: skip
            (run / "events" / "submit.jsonl").write_text(json.dumps(first) + "\n")
            (run / "events" / "end.jsonl").write_text(json.dumps(end) + "\n")


def listed(work: Path, count: int) -> struct_rusage:
    """What one `ps -a` used."""
    environ = os.environ | {"TRAINSHED_HOME": str(work / f"home-{count}")}
    argv = [sys.executable, "-m", "trainshed.cli.main", "ps", "-a"]
    with (work / "shown").open("w+") as shown:
        process = subprocess.Popen(argv, env=environ, stdout=shown)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        shown.seek(0)
        lines = len(shown.readlines())
    if process.returncode != 0 or lines != count + 1:
        raise RuntimeError(f"ps -a exited with {process.returncode} and listed {lines - 1} of {count} runs")
    return used


def cpu(work: Path) -> float:
    used = listed(work, MANY)
    return used.ru_utime + used.ru_stime


def memory(count: int) -> Side:
    return lambda work: listed(work, count).ru_maxrss / 1024


FLAT = 0.95
"""Of the memory with 100 runs: at most a twentieth more, whatever their number (allocators take a MiB at a time)."""
RACES = [
    Race("ps-10000-cpu", cpu, {"one second": lambda _: 1.0}, setup=make_runs),
    Race("ps-10000-memory", memory(MANY), {"100 runs": memory(FEW)}, setup=make_runs, least=FLAT, unit="MiB"),
]
