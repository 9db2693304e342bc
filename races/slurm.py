"""Race: 200 small jobs handed to a real Slurm, by one `trainshed submit` and by `sbatch` for each.

Jobs are held, so that only submission is measured and not what two cores make
of 200 running jobs.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from races.harness import ROOT, Race, seconds_of

sys.path.insert(0, str(ROOT / "tests/real/slurm"))

_JOBS = 200
_SCRIPT = "#!/bin/bash\n#SBATCH --hold --nodes=1 --ntasks-per-node=1 --output=/dev/null\ntrue\n"
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

    save("slurm", {"sbatch": ["--hold"]}, work / "home")
    jobs = work / "jobs"
    jobs.mkdir()
    for number in range(_JOBS):
        (jobs / f"{number:03}.yaml").write_text(f"name: small-{number}\ncommand: 'true'\n")
        (jobs / f"{number:03}.sh").write_text(_SCRIPT)


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


def _ours(work: Path) -> float:
    jobs = sorted(work.glob("jobs/*.yaml"))
    spent = seconds_of([ROOT / ".venv/bin" / "trainshed", "submit", "--engine", "slurm", *jobs])
    _clear()
    return spent


def _sbatch(work: Path) -> float:
    spent = seconds_of(
        ["bash", "-ec", "for script in jobs/*.sh; do sbatch --parsable $script; done"], cwd=work
    )
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
