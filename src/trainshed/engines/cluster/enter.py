"""How one process of a node enters the job's image, for each container tool a cluster may have.

The agent stays outside and puts this module before a process' command line:
`enter TOOL LABEL MOUNTS -w DIR -e NAME … IMAGE COMMAND …`. Values of variables
are inherited, never written on a command line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

from trainshed.engines.cluster import containers

Mounts = Sequence[tuple[str, str]]
_OF_STEP = ("SLURM_JOBID", "SLURM_STEPID", "SLURM_STEP_ID", "SLURM_GTIDS")
"""What srun says of the step that only enters a container; MPI libraries would believe it."""
_FOR_SRUN = ("SLURM_CONF", "SLURM_JOB_ID")


def prefix(python: str, tool: str, label: str, mounts: Mounts) -> tuple[str, ...]:
    """The prefix of a process' command line; `{node}` in a path becomes the node's number."""
    pairs = json.dumps([list(pair) for pair in mounts])
    return (python, "-m", "trainshed.engines.cluster.enter", tool, label, pairs)


def command(
    tool: str, label: str, mounts: Mounts, arguments: Sequence[str], environ: Mapping[str, str] | None = None
) -> list[str]:
    """The tool's own command line for `-w DIR -e NAME … IMAGE COMMAND …`."""
    folder, names, image, argv = _parse(arguments)
    bound = [f"{source}:{target}" for source, target in mounts]
    if tool == "podman":
        variables = [argument for name in names for argument in ("-e", name)]
        return [*containers.start("podman", label, mounts), "-w", folder, *variables, image, *argv]
    if tool == "apptainer":
        return [
            "apptainer",
            "exec",
            "--no-home",
            f"--bind={','.join(bound)}",
            f"--pwd={folder}",
            image,
            *argv,
        ]
    if tool == "enroot":
        variables = [argument for name in names for argument in ("--env", name)]
        volumes = [argument for pair in bound for argument in ("--mount", pair)]
        inside = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', folder]
        return ["enroot", "start", "--rw", *volumes, *variables, image, *inside, *argv]
    if tool == "pyxis":
        known = environ or {}
        node = [f"--jobid={known.get('SLURM_JOB_ID', '')}", f"--nodelist={known.get('SLURMD_NODENAME', '')}"]
        start = [
            "srun",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--cpu-bind=none",
            "--mpi=none",
            "--export=ALL",
        ]
        inside = [f"--container-mounts={','.join(bound)}", f"--container-workdir={folder}"]
        # srun sets variables of a world of one: the process gets its own back.
        world = [f"{name}={known[name]}" for name in names if name.startswith("SLURM") and name in known]
        unset = [argument for name in _OF_STEP for argument in ("-u", name)]
        return [*start, *node, f"--container-image={image}", *inside, "env", *unset, *world, *argv]
    raise ValueError(f"unknown container tool: {tool!r}")


def _parse(arguments: Sequence[str]) -> tuple[str, list[str], str, list[str]]:
    rest, folder, names = list(arguments), "/", []
    while rest and rest[0] in ("-w", "-e"):
        flag, value = rest.pop(0), rest.pop(0)
        if flag == "-w":
            folder = value
        else:
            names.append(value)
    return folder, names, rest[0], rest[1:]


def main() -> None:
    mounts = [(source, target) for source, target in json.loads(sys.argv[3])]
    argv = command(sys.argv[1], sys.argv[2], mounts, sys.argv[4:], os.environ)
    env = dict(os.environ)
    if sys.argv[1] == "pyxis":
        # srun would take a rank's world for its own options.
        env = {
            name: value for name, value in env.items() if not name.startswith("SLURM") or name in _FOR_SRUN
        }
    os.execvpe(argv[0], argv, env)  # noqa: S606 (a list, and no shell)


if __name__ == "__main__":
    main()
