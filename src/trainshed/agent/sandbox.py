"""How an agent is enclosed on a machine, so that two nodes on it behave like two machines.

bubblewrap gives each node private /tmp, /cache, home and shared memory, a host
name, a hosts file and a process namespace. Without it agents are plain
processes, and `what_is_shared` says what that cannot isolate.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainshed.plan.model import NodePlan

_SYSTEM = {"bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "sys", "usr"}
_OWN = {"proc", "dev", "tmp", "cache", "lost+found"}
WITHOUT = (
    "nodes share /tmp, the process list, host name and hosts file of this machine; "
    "paths such as /cache are moved below each node's scratch folder"
)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What a node may see besides its private folders: paths that must stay visible, and whether writable."""

    hosts: Path
    scratch: Path
    visible: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


@cache
def why_not() -> str:
    """Why bubblewrap cannot be used here; empty when it can. Tried once, for real."""
    tool = shutil.which("bwrap")
    if tool is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    probe = [
        tool,
        "--ro-bind",
        "/",
        "/",
        "--unshare-pid",
        "--unshare-uts",
        "--hostname",
        "probe",
        "--proc",
        "/proc",
    ]
    try:
        done = subprocess.run([*probe, "/bin/true"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not start: {error}"
    if done.returncode != 0:
        return f"bubblewrap does not start: {done.stderr.strip() or done.returncode}"
    return ""


def enclose(node: NodePlan, enclosure: Enclosure, argv: Sequence[str], info_fd: int) -> list[str]:
    """The command line that starts `argv` as the given node. `info_fd` is told the node's first process.

    That is `argv` itself: when it dies, however it dies, the kernel ends all that is on the node.
    """
    command = [shutil.which("bwrap") or "bwrap", "--as-pid-1", "--info-fd", str(info_fd)]
    command += ["--unshare-pid", "--unshare-uts", "--unshare-ipc", "--hostname", node.name[:64]]
    command += _root([seen for seen, _ in node.private])
    command += ["--proc", "/proc", "--dev-bind", "/dev", "/dev", "--tmpfs", "/dev/shm"]  # noqa: S108
    for seen, folder in node.private:
        source = enclosure.scratch / folder
        source.mkdir(parents=True, exist_ok=True)
        command += ["--bind", str(source), seen]
    command += ["--ro-bind", str(enclosure.hosts), "/etc/hosts"]
    covered = tuple(seen for seen, _ in node.private)
    for path in enclosure.visible:
        if _is_below(path, covered) and Path(path).exists():
            command += ["--ro-bind", path, path]
    for path in enclosure.writable:
        if _is_below(path, (*covered, *(f"/{name}" for name in _SYSTEM))) and Path(path).exists():
            command += ["--bind", path, path]
    return [*command, "--", *argv]


def _root(private: Sequence[str]) -> list[str]:
    """The machine's root, entry by entry: system folders read only, private places left out.

    A folder that holds a private place is made anew and filled with its other
    entries, so that no mount point has to be made in the machine's own.
    """
    command: list[str] = []
    for path in sorted(Path("/").iterdir()):
        if path.name not in _OWN:
            command += _expose(path, private, "--ro-bind" if path.name in _SYSTEM else "--bind")
    return command


def _expose(path: Path, private: Sequence[str], bind: str) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    if str(path) in private or not (path.is_dir() or path.is_file()):
        return []
    if not any(place.startswith(f"{path}/") for place in private):
        return [bind, str(path), str(path)]
    command = ["--dir", str(path)]
    for child in sorted(path.iterdir()):
        command += _expose(child, private, bind)
    return command


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(os.path.commonpath([path, folder]) == folder for folder in folders)
