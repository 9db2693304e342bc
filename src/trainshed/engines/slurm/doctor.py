"""What a site has for this engine, what it lacks, and what to ask its administrator for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainshed import store
from trainshed.agent import sandbox
from trainshed.engines.base import Check, Context
from trainshed.engines.slurm.client import Slurm
from trainshed.engines.slurm.profile import SlurmSettings
from trainshed.errors import TrainshedError
from trainshed.plural import counted
from trainshed.spec.kinds import DeviceKind

_COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
_SHARED = {
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cifs",
    "glusterfs",
    "pvfs2",
    "weka",
    "fuse.juicefs",
}


def checks(chosen: SlurmSettings, context: Context) -> list[Check]:
    """Everything in the order in which it would go wrong."""
    named = chosen.profile_name
    found = [Check("profile", True, named or "none: Slurm's own defaults are used")]
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        remedy = "run this on a login node, or reach one: trainshed profile add slurm login=user@host"
        return [*found, Check("commands", False, f"missing: {', '.join(missing)}", remedy, required=True)]
    found.append(Check("commands", True, ", ".join(_COMMANDS)))
    try:
        found += _cluster(Slurm(chosen.profile.slurm_conf), chosen)
    except TrainshedError as error:
        found.append(
            Check(
                "controller",
                False,
                error.message,
                "ask the administrator whether slurmctld runs",
                required=True,
            )
        )
    return [*found, *_nodes(chosen, context)]


def _cluster(slurm: Slurm, chosen: SlurmSettings) -> Iterator[Check]:
    conf, profile = slurm.configuration(), chosen.profile
    cluster = conf.get("ClusterName", "unnamed")
    yield Check("controller", True, f"{cluster}, Slurm {conf.get('SLURM_VERSION', 'of unknown version')}")
    partitions = slurm.partitions()
    listing = ", ".join(
        f"{name} ({counted(count, 'node')}, limit {limit})" for name, _, limit, count, _ in partitions
    )
    names = {name for name, up, *_ in partitions if up == "up"}
    if profile.partition and not set(profile.partition.split(",")) <= names:
        remedy = f"choose another, or ask the administrator for access to {profile.partition}"
        yield Check("partition", False, f"{profile.partition} is not among: {listing}", remedy)
    else:
        yield Check(
            "partition", bool(names), listing or "none is up", "" if names else "ask the administrator"
        )
    gres = ",".join(kinds for *_, kinds in partitions)
    for kind in (DeviceKind.NVIDIA, DeviceKind.ASCEND):
        name = profile.gres_name(kind)
        found = any(item.split(":")[0] == name for item in gres.split(","))
        remedy = f"for {kind.value} jobs ask for it; or trainshed profile add slurm gres.{kind.value}=NAME"
        yield Check(
            f"GRES {name}",
            found,
            gres if found else f"no node offers it (offered: {gres})",
            "" if found else remedy,
        )
    accounting = conf.get("AccountingStorageType", "")
    off = accounting.endswith("none")
    kept = conf.get("MinJobAge", "a while")
    status = (
        f"off: Slurm itself remembers ended jobs for {kept}; runs keep their own record"
        if off
        else accounting
    )
    yield Check("accounting", True, status)
    requeue = conf.get("JobRequeue", "1")
    yield Check(
        "requeue",
        requeue == "1",
        "allowed" if requeue == "1" else "switched off",
        "" if requeue == "1" else "ask for JobRequeue=1, or runs do not survive preemption",
    )
    wait = conf.get("KillWait", "")
    yield Check("time to stop", True, f"KillWait {wait}: time that `scancel` leaves a job to save outputs")


def _nodes(chosen: SlurmSettings, context: Context) -> Iterator[Check]:
    yield _runs(chosen, context)
    why_not = sandbox.why_not()
    yield Check(
        "isolation",
        not why_not,
        why_not or "bubblewrap works on this host",
        f"ask for bubblewrap on the nodes; until then {sandbox.WITHOUT}" if why_not else "",
    )
    tools = [name for name in ("podman", "apptainer", "enroot") if shutil.which(name)]
    yield Check(
        "containers",
        bool(tools),
        ", ".join(tools) or "none on this host",
        "" if tools else "only jobs with an image need one: ask for apptainer, podman or pyxis with enroot",
    )


def _runs(chosen: SlurmSettings, context: Context) -> Check:
    """Where runs lie so that all nodes read them: in a shared folder, or in an object store."""
    if url := chosen.profile.runs:
        try:
            found = store.exists("/".join(url.split("/")[:3]), credentials=context.store.keys(url))
        except TrainshedError as error:
            return Check("runs", False, f"{url}: {error.message}", error.hint)
        return Check(
            "runs", found, url if found else f"{url}: there is no such bucket", "" if found else "make it"
        )
    kind = _file_system(context.home)
    shared = kind in _SHARED
    return Check(
        "shared home",
        shared or bool(chosen.profile.home),
        f"{chosen.profile.home or context.home} on {kind}",
        ""
        if shared
        else "runs are read by all nodes: set TRAINSHED_HOME to a folder that they share, or "
        "trainshed profile add slurm runs=s3://BUCKET/runs",
    )


def _file_system(path: Path) -> str:
    """The type of the file system a path is on, by the longest mount point above it."""
    best, kind = "", "an unknown file system"
    try:
        for line in Path("/proc/mounts").read_text().splitlines():
            _, point, name, *_ = line.split()
            inside = os.path.commonpath([point, path]) == point
            if inside and len(point) >= len(best):
                best, kind = point, name
    except (OSError, ValueError):
        pass
    return kind
