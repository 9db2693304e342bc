"""The share of a run's time that is ours: four processes that do nothing, on two nodes of two.

The peer is torchrun, started once per node as its documentation says; ours is
`trainshed run`, which also isolates the nodes and keeps a record.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from races.harness import ROOT, Race

ENVIRONMENTS = Path(os.environ.get("TRAINSHED_ENVS") or ROOT / ".envs")
TORCHRUN = ENVIRONMENTS / "pytorch" / "bin" / "torchrun"


def setup(work: Path) -> None:
    (work / "noop.py").write_text("pass\n")
    (work / "job.yaml").write_text(
        "name: noop\nlauncher: pytorch\nenvironment: pytorch\ncode: .\nentry: noop.py\nresources: 2x2\n"
    )


def ours(work: Path) -> float:
    env = os.environ | {"TRAINSHED_HOME": str(work / "home"), "TRAINSHED_ENVS": str(ENVIRONMENTS)}
    command = [str(Path(sys.executable).with_name("trainshed")), "run", str(work / "job.yaml")]
    began = time.monotonic()
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
    return time.monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(work: Path) -> float:
    base = [
        str(TORCHRUN),
        "--nnodes=2",
        "--nproc-per-node=2",
        "--master-addr=127.0.0.1",
        f"--master-port={free_port()}",
    ]
    began = time.monotonic()
    nodes = [
        subprocess.Popen([*base, f"--node-rank={i}", str(work / "noop.py")], stderr=subprocess.DEVNULL)
        for i in range(2)
    ]
    try:
        codes = [node.wait(120) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    if any(codes):
        raise RuntimeError(f"torchrun exited with {codes}")
    return time.monotonic() - began


def needs() -> str:
    return "" if TORCHRUN.exists() else "environment pytorch is missing: trainshed env create pytorch"


RACES = [Race("startup-2x2", ours, {"torchrun": torchrun}, setup, rounds=7, needs=needs)]
