"""Planning 4,096 nodes of 8 devices, every rank's variables and files included, against TorchX's dry run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from races.harness import Race, peer_venv

OURS = """\
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.load import load_job
job = load_job({"name": "large", "launcher": "pytorch", "code": "/code", "entry": "train.py", "resources": "4096x8"})
devices = tuple(Device(index) for index in range(8))
hosts = [Host(f"n{i}", f"10.{i >> 8}.{i & 255}.1", devices, 20000) for i in range(4096)]
site = Site(python="/usr/bin/python3", search_path="/usr/bin", scratch="/scratch", library="/lib/trainshed")
made = plan(job, Topology.of(DeviceKind.CPU, hosts), site, "large")
assert sum(len(node.processes) for node in made.nodes) == 4096 * 8
"""
THEIRS = """\
from torchx.components.dist import ddp
from torchx.schedulers.slurm_scheduler import create_scheduler
app = ddp("--epochs", "3", script="train.py", image="/tmp", name="large", j="4096x8")
info = create_scheduler("race").submit_dryrun(app, {"partition": "p"})
str(info)
"""


def ours(work: Path) -> float:
    return _timed([sys.executable, "-c", OURS])


def torchx(work: Path) -> float:
    return _timed([str(peer_venv(["torchx==0.7.0"], "torchx") / "python"), "-c", THEIRS])


def _timed(command: list[str]) -> float:
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return time.monotonic() - began


RACES = [Race("planning-4096x8", ours, {"torchx": torchx}, rounds=3)]
