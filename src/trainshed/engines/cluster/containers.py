"""A job's image in podman or docker: every process of a node enters it with the node's own folders.

The agent stays outside, so an image needs nothing of Trainshed's.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

PACKAGE = str(Path(__file__).resolve().parents[2])
"""What is given to scripts (moxing and the rest) is in Trainshed's own package: an image must see it."""
_LABEL = "trainshed"
_MOST = {"nofile": 1 << 20, "nproc": 32768}
"""The most that is asked for. Of processes podman passes no more on, and then fails to set what it was asked."""


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


def start(name: str, label: str, mounts: Sequence[tuple[str, str]]) -> list[str]:
    """The beginning of the command line that runs something in a container, of podman or docker."""
    command = [name, "run", "--rm", "--network=host", "--ipc=host", "--label", label]
    if not name.endswith("podman") or shutil.which("catatonit"):
        # A first process that passes signals on; a rank alone in its container would not get SIGTERM.
        command.append("--init")
    if name.endswith("podman"):
        command += ["--runtime=runc"] if shutil.which("runc") else []
        command += [_limit("nofile", resource.RLIMIT_NOFILE), _limit("nproc", resource.RLIMIT_NPROC)]
    return [*command, *(argument for source, target in mounts for argument in ("-v", f"{source}:{target}"))]


def remove(label: str) -> None:
    """Make sure that no container of that label is left, whoever started it."""
    _remove(lambda found: found == label)


def remove_all(run: str) -> None:
    """Make sure that no container of any node of the run is left."""
    _remove(lambda found: found.startswith(label_of(run, "")))


def _remove(wanted: Callable[[str], bool]) -> None:
    name = tool()
    if name is None:
        return
    listing = [
        name,
        "ps",
        "-a",
        "--filter",
        f"label={_LABEL}",
        "--format",
        f'{{{{.ID}}}} {{{{index .Labels "{_LABEL}"}}}}',
    ]
    if not name.endswith("podman"):
        listing[-1] = f'{{{{.ID}}}} {{{{.Label "{_LABEL}"}}}}'
    try:
        lines = subprocess.run(listing, capture_output=True, text=True, timeout=60).stdout.splitlines()
        found = [
            number
            for number, _, label in (line.partition(" ") for line in lines)
            if wanted(f"{_LABEL}={label}")
        ]
        if found:
            at_once = ["--time", "0"] if name.endswith("podman") else []
            subprocess.run([name, "rm", "-f", *at_once, *found], capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return


def label_of(run: str, node: int | str) -> str:
    return f"{_LABEL}={run}/{node}"


def _limit(name: str, kind: int) -> str:
    """Our own hard limit: podman would ask for more, which not every machine allows."""
    hard = resource.getrlimit(kind)[1]
    most = _MOST[name] if hard == resource.RLIM_INFINITY else min(hard, _MOST[name])
    return f"--ulimit={name}={most}:{most}"
