"""The batch script: what Slurm is asked for. Pure: the dry run prints just what `sbatch` gets."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.engines.slurm.profile import Settings
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind

_STOPPING = 30
"""Seconds before the time limit in which outputs are saved, besides the job's own grace."""
_STAGING = 600
"""Seconds added to a job's own timeout, which does not count waiting for nodes to answer."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where Trainshed is found on the nodes."""

    python: str
    folder: str
    environments: str
    runs: str = ""
    """The URL below which runs lie in an object store; empty: in a folder that nodes share."""


def render(
    job: JobSpec, settings: Settings, runs: Sequence[str], where: Home, dependency: str, emulate: bool
) -> str:
    """The script for one run, or for an array with one run directory for each task."""
    lines = ["#!/bin/bash"]
    asked = options(job, settings, runs, dependency, emulate, carried=bool(where.runs))
    lines += [f"#SBATCH {option}" for option in asked]
    lines += ["", *_environment(settings, where)]
    if len(runs) == 1:
        lines.append(f"run={shlex.quote(runs[0])}")
    else:
        lines.append(f'run={shlex.quote(common(runs))}."$SLURM_ARRAY_TASK_ID"')
    # exec: the driver takes the shell's place, so that Slurm's signals reach it.
    python = f"exec {shlex.quote(where.python)} -m trainshed.engines.slurm"
    if where.runs:
        lines.append(f'{python}.carried {shlex.quote(where.runs)} "$run"')
    else:
        lines.append(f'{python}.driver "$run"')
    return "\n".join(lines) + "\n"


def options(
    job: JobSpec,
    settings: Settings,
    runs: Sequence[str],
    dependency: str,
    emulate: bool,
    carried: bool = False,
) -> list[str]:
    """The options of sbatch, one each."""
    profile, wanted = settings.profile, job.resources
    pattern = runs[0] if len(runs) == 1 else f"{common(runs)}.%a"
    found = [
        f"--job-name={job.name}",
        f"--comment=trainshed:{common(runs).rpartition('/')[2]}",
        f"--nodes={wanted.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={wanted.devices * profile.cpus_per_device}",
    ]
    if wanted.kind is not DeviceKind.CPU and not emulate:
        found.append(f"--gres={profile.gres_name(wanted.kind)}:{wanted.devices}")
    if wanted.memory:
        found.append(f"--mem={math.ceil(wanted.memory / 2**20)}M")
    for name in ("partition", "account", "qos", "constraint", "nodelist"):
        if value := getattr(profile, name):
            found.append(f"--{name}={value}")
    limit = time_limit(job, settings)
    if limit:
        found.append(f"--time={limit}")
    found.append(f"--signal=B:TERM@{math.ceil(job.grace) + _STOPPING}")
    if profile.exclusive:
        found.append("--exclusive")
    found.append("--requeue" if profile.requeue else "--no-requeue")
    found += ["--open-mode=append", f"--output={carried_log(pattern) if carried else f'{pattern}/slurm.log'}"]
    if dependency:
        found += [f"--dependency={dependency}", "--kill-on-invalid-dep=yes"]
    if len(runs) > 1:
        most = f"%{settings.at_once}" if settings.at_once else ""
        found.append(f"--array=0-{len(runs) - 1}{most}")
    return [*found, *profile.sbatch]


def carried_log(run: str) -> Path:
    """Slurm's own log of a run that a node only visits: it must lie in a folder that exists before the job."""
    return Path(run).parents[2] / f"trainshed-{Path(run).name}.slurm.log"


def own_disk(scratch: str | None) -> Path:
    """This user's folder on each node's own disk."""
    return Path(scratch or "/tmp") / f"trainshed-{os.getuid()}"  # noqa: S108


def time_limit(job: JobSpec, settings: Settings) -> int | None:
    """Minutes, Slurm's unit: what the site or the user says, else what the job's own timeout needs."""
    seconds = settings.profile.time
    if seconds is None and job.timeout is not None:
        seconds = job.timeout + job.grace + _STOPPING + _STAGING
    return None if seconds is None else max(1, math.ceil(seconds / 60))


def common(runs: Sequence[str]) -> str:
    """The path that the run directories of an array share; task i has `<it>.i`."""
    return runs[0] if len(runs) == 1 else runs[0].rpartition(".")[0]


def _environment(settings: Settings, where: Home) -> list[str]:
    profile = settings.profile
    lines = []
    if profile.modules:
        lines.append("command -v module >/dev/null || . /etc/profile")
        lines.append(f"module load {shlex.join(profile.modules)} || exit 1")
    lines += profile.setup
    variables = {"TRAINSHED_HOME": where.folder, "TRAINSHED_ENVS": where.environments}
    return lines + [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if value]
