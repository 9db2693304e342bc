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

from trainshed.engines import _containers as containers

Mounts = Sequence[tuple[str, str]]


def prefix(python: str, tool: str, label: str, mounts: Mounts) -> tuple[str, ...]:
    """What stands before a process' own words; `{node}` in a path becomes the node's number."""
    pairs = json.dumps([list(pair) for pair in mounts])
    return (python, "-m", "trainshed.engines.slurm.enter", tool, label, pairs)


def command(
    tool: str, label: str, mounts: Mounts, words: Sequence[str], slurm: Mapping[str, str] | None = None
) -> list[str]:
    """The tool's own command line for `-w DIR -e NAME … IMAGE COMMAND …`."""
    folder, names, image, argv = _parse(words)
    bound = [f"{source}:{target}" for source, target in mounts]
    if tool == "podman":
        variables = [word for name in names for word in ("-e", name)]
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
        variables = [word for name in names for word in ("--env", name)]
        volumes = [word for pair in bound for word in ("--mount", pair)]
        inside = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', folder]
        return ["enroot", "start", "--rw", *volumes, *variables, image, *inside, *argv]
    if tool == "pyxis":
        here = slurm or {}
        place = [f"--jobid={here.get('SLURM_JOB_ID', '')}", f"--nodelist={here.get('SLURMD_NODENAME', '')}"]
        start = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--export=ALL", *place]
        inside = [f"--container-mounts={','.join(bound)}", f"--container-workdir={folder}"]
        return [*start, f"--container-image={image}", *inside, *argv]
    raise ValueError(f"no container tool is called {tool!r}")


def _parse(words: Sequence[str]) -> tuple[str, list[str], str, list[str]]:
    rest, folder, names = list(words), "/", []
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
    os.execvp(argv[0], argv)  # noqa: S606 (a list, and no shell)


if __name__ == "__main__":
    main()
