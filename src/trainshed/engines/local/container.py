"""A job's image on this machine: every process of a node in podman or docker, with the node's own folders.

The agent stays outside, so an image needs nothing of Trainshed's.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import trainshed
from trainshed.plan.model import NodePlan, Plan


def tool() -> str | None:
    """podman, or docker with a daemon that answers; None without either."""
    podman = shutil.which("podman")
    if podman:
        return podman
    docker = shutil.which("docker")
    if docker:
        try:
            done = subprocess.run([docker, "info"], capture_output=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return docker if done.returncode == 0 else None
    return None


def prefix(plan: Plan, node: NodePlan, scratch: Path, run_dir: Path, hosts: Path) -> tuple[str, ...]:
    """What stands before a process' own command line. The variables' names follow when it is started."""
    name = tool() or "podman"
    command = [name, "run", "--rm", "--network=host", "--ipc=host", "--label", _label(plan, node)]
    if not name.endswith("podman") or shutil.which("catatonit"):
        # A first process that passes signals on; a rank alone in its container would not get SIGTERM.
        command.append("--init")
    if name.endswith("podman"):
        command += ["--runtime=runc"] if shutil.which("runc") else []
        command += ["--ulimit=nofile=20000:20000", "--ulimit=nproc=32768:32768"]
    command += ["--hostname", node.name[:63], "-v", f"{hosts}:/etc/hosts:ro", "-v", f"{run_dir}:{run_dir}"]
    # What is given to scripts (moxing and the rest) lies in Trainshed's own package.
    package = Path(trainshed.__file__).parent
    command += ["-v", f"{package}:{package}:ro"]
    for seen, folder in node.private:
        (scratch / folder).mkdir(parents=True, exist_ok=True)
        command += ["-v", f"{scratch / folder}:{seen}"]
    return tuple(command)


def remove(plan: Plan, node: NodePlan) -> None:
    """Make sure that no container of the node is left, whoever started it."""
    name = tool()
    if name is None:
        return
    try:
        found = subprocess.run(
            [name, "ps", "-aq", "--filter", f"label={_label(plan, node)}"],
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout.split()
        if found:
            subprocess.run([name, "rm", "-f", *found], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return


def _label(plan: Plan, node: NodePlan) -> str:
    return f"trainshed={plan.run}/{node.index}"
