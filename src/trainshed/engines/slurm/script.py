"""The batch script: what Slurm is asked for. Pure: the dry run prints just what `sbatch` gets."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.engines.base import DEFAULT_PRIORITY
from trainshed.engines.slurm.profile import SlurmSettings
from trainshed.errors import RefusedError
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind

STOPPING = 30
"""Seconds before the time limit in which outputs are saved, besides the job's own grace."""
_STAGING = 600
"""Seconds added to a job's own timeout, which does not count waiting for nodes to answer."""


_ODD = re.compile(r"[^A-Za-z0-9_./%@+=:,-]")
"""What a path may hold that needs quotes after #SBATCH."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where Trainshed is found on the nodes."""

    python: str
    folder: str
    environments: str
    runs: str = ""
    """The URL below which runs are in an object store; empty: in a folder that nodes share."""


def render(
    job: JobSpec, settings: SlurmSettings, runs: Sequence[str], where: Home, dependency: str, emulate: bool
) -> str:
    """The script for one run, or for an array with one run directory for each task."""
    lines = ["#!/bin/bash"]
    requested = options(job, settings, runs, dependency, emulate, in_object_store=bool(where.runs))
    lines += [f"#SBATCH {option}" for option in requested]
    # Slurm may warn of the time limit at once, before the driver can handle it: it checks the clock itself.
    lines += ["", "trap '' TERM", *_environment(settings, where)]
    if len(runs) == 1:
        lines.append(f"run={shlex.quote(runs[0])}")
    else:
        lines.append(f'run={shlex.quote(common(runs))}."$SLURM_ARRAY_TASK_ID"')
    # exec: the driver takes the shell's place, so that Slurm's signals reach it.
    python = f"exec {shlex.quote(where.python)} -m trainshed.engines.slurm"
    if where.runs:
        lines.append(f'{python}.object_store_run {shlex.quote(where.runs)} "$run"')
    else:
        lines.append(f'{python}.driver "$run"')
    return "\n".join(lines) + "\n"


def options(
    job: JobSpec,
    settings: SlurmSettings,
    runs: Sequence[str],
    dependency: str,
    emulate: bool,
    in_object_store: bool = False,
) -> list[str]:
    """The options of sbatch, one each."""
    profile, wanted = settings.profile, job.resources
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
        value = getattr(profile, name)
        if name == "qos" and job.preemptible:
            value = profile.preemptible_qos or value
        if value:
            found.append(f"--{name}={value}")
    limit = time_limit(job, settings)
    if limit:
        found.append(f"--time={limit}")
    found.append(f"--signal=B:TERM@{math.ceil(job.grace) + STOPPING}")
    if job.priority < DEFAULT_PRIORITY:
        found.append(f"--nice={DEFAULT_PRIORITY - job.priority}")
    if profile.exclusive:
        found.append("--exclusive")
    found.append("--requeue" if profile.requeue or job.preemptible else "--no-requeue")
    found += ["--open-mode=append", f"--output={_log_pattern(runs, in_object_store)}"]
    if dependency:
        found += [f"--dependency={dependency}", "--kill-on-invalid-dep=yes"]
    if len(runs) > 1:
        most = f"%{settings.at_once}" if settings.at_once else ""
        found.append(f"--array=0-{len(runs) - 1}{most}")
    return [*found, *profile.sbatch]


def queue_notes(job: JobSpec, settings: SlurmSettings) -> list[str]:
    """What Slurm cannot express of a job's priority."""
    notes = []
    if job.priority > DEFAULT_PRIORITY:
        notes.append(
            f"priority {job.priority} has no effect: Slurm lets users only lower a job's priority "
            f"(below {DEFAULT_PRIORITY})"
        )
    if job.preemptible and not settings.profile.preemptible_qos:
        notes.append(
            "preemptible: the site's profile names no preemptible_qos; the job is only put back when preempted"
        )
    return notes


def _log_pattern(runs: Sequence[str], in_object_store: bool) -> str:
    """Where Slurm writes a run's log, as Slurm's file name pattern: `%a` is the number in an array."""
    run = common(runs)
    path = str(object_store_log(run)) if in_object_store else f"{run}/driver.log"
    if not path.isprintable() or "\\" in path:
        raise RefusedError(
            f"{path!r}: Slurm takes no backslash and no control character in the path of a log",
            "set TRAINSHED_HOME (or the profile's home or scratch) to another folder",
        )
    path = path.replace("%", "%%")
    if len(runs) > 1:
        name = Path(run).name.replace("%", "%%")
        path = f"{name}.%a".join(path.rsplit(name, 1))
    return f'"{path.replace(chr(34), chr(92) + chr(34))}"' if _ODD.search(path) else path


def object_store_log(run: str) -> Path:
    """Slurm's log of a run in an object store: it must be in a folder that exists before the job."""
    return Path(run).parents[2] / f"trainshed-{Path(run).name}.driver.log"


def local_disk(scratch: str | None) -> Path:
    """This user's folder on each node's local disk."""
    return Path(scratch or "/tmp") / f"trainshed-{os.getuid()}"  # noqa: S108


def time_limit(job: JobSpec, settings: SlurmSettings) -> int | None:
    """Minutes, Slurm's unit: what the site or the user says, else what the job's own timeout needs."""
    seconds = settings.profile.time
    if seconds is None and job.timeout is not None:
        seconds = job.timeout + job.grace + STOPPING + _STAGING
    return None if seconds is None else max(1, math.ceil(seconds / 60))


def common(runs: Sequence[str]) -> str:
    """The path that the run directories of an array share; task i has `<it>.i`."""
    return runs[0] if len(runs) == 1 else runs[0].rpartition(".")[0]


def _environment(settings: SlurmSettings, where: Home) -> list[str]:
    profile = settings.profile
    lines = []
    if profile.modules:
        lines.append("command -v module >/dev/null || . /etc/profile")
        lines.append(f"module load {shlex.join(profile.modules)} || exit 1")
    lines += profile.setup
    variables = {"TRAINSHED_HOME": where.folder, "TRAINSHED_ENVS": where.environments}
    return lines + [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if value]
