"""Race: 200 small jobs handed to a real Slurm, by Trainshed and by plain `sbatch`.

Jobs are held, so that only submission is measured and not what two cores make
of 200 running jobs. Both sides start from this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.harness import ROOT, Race

sys.path.insert(0, str(ROOT / "tests/real/slurm"))

_JOBS = 200
_cluster: Any = None


def _needs() -> str:
    from slurm_cluster import INSTALL, missing

    return f"Slurm is not installed: {INSTALL}" if missing() else ""


def _setup(work: Path) -> None:
    global _cluster
    from slurm_cluster import Cluster

    _cluster = Cluster(work / "slurm")
    _cluster.start()
    os.environ |= _cluster.env | {"TRAINSHED_HOME": str(work / "home")}
    from trainshed.engines.slurm.profile import save

    save("slurm", {"sbatch": ["--hold"]})


def _teardown(_work: Path) -> None:
    _cluster.stop()
    for name in ("SLURM_CONF", "TRAINSHED_HOME"):
        os.environ.pop(name, None)


def _clear() -> None:
    """Not timed: the queue is empty before the other side's turn."""
    _cluster.ask("scancel", f"--user={os.getuid()}")
    deadline = time.monotonic() + 60
    while _cluster.ask("squeue", "-h", "-o", "%i") and time.monotonic() < deadline:
        time.sleep(0.1)


def _ours(_work: Path) -> float:
    from trainshed.engines.base import Request
    from trainshed.engines.slurm.engine import ENGINE
    from trainshed.spec.load import load_job

    request = Request(load_job({"name": "small", "command": "true"}))
    began = time.monotonic()
    for _ in range(_JOBS):
        ENGINE.submit(request)
    spent = time.monotonic() - began
    _clear()
    return spent


def _sbatch(work: Path) -> float:
    script = "#!/bin/bash\n#SBATCH --hold --nodes=1 --ntasks-per-node=1 --output=/dev/null\ntrue\n"
    began = time.monotonic()
    for _ in range(_JOBS):
        subprocess.run(
            ["sbatch", "--parsable"], input=script, text=True, capture_output=True, check=True, cwd=work
        )
    spent = time.monotonic() - began
    _clear()
    return spent


RACES = [
    Race(
        name="slurm-submit-200",
        ours=_ours,
        peers={"sbatch": _sbatch},
        setup=_setup,
        teardown=_teardown,
        rounds=3,
        least=0.8,
        needs=_needs,
    )
]
