"""How a node and its processes are enclosed on a machine, in two steps.

`enclose` starts an agent as a node, by bubblewrap: system folders read only, the folders it
is given, private /tmp, /cache, home and shared memory, a host name, a hosts file
and a process namespace. Nothing else of the machine's files is there. `confine`
starts each process of the node with less: no run directory, no input cache, no
capabilities. docs/isolation.md says what this promises and what it does not.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainshed.agent import homes
from trainshed.plan.model import NodePlan

_SYSTEM = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "sys", "usr")
_DEVICES = (
    "nvidia*", "nvidia-caps/*", "davinci*", "davinci_manager", "devmm_svm", "hisi_hdc", "infiniband/*", "fuse",
)  # fmt: skip
"""Device files that frameworks open; of /dev nothing else is there but the usual harmless ones."""
_CONFINE = Path(__file__).with_name("confine.py")
_SSH_NEEDS = ("CAP_SYS_CHROOT", "CAP_SETUID", "CAP_SETGID")
WITHOUT = (
    "nodes share /tmp, the process list, host name and hosts file of this machine, and a job may read and "
    "write whatever its user may; paths such as /cache are moved below each node's scratch folder"
)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What a node has besides the system: its scratch folder, and paths that it may see, or write."""

    hosts: Path
    scratch: Path
    visible: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: str = ""
    """A folder of which only what `visible` and `writable` name is there: Trainshed's home."""


@cache
def why_not() -> str:
    """Why bubblewrap cannot be used here; empty when it can. Tried once, for real."""
    tool = shutil.which("bwrap")
    if tool is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    outer = [tool, "--ro-bind", "/", "/", "--unshare-pid", "--unshare-uts", "--hostname", "probe"]
    inner = confine(["/bin/true"], [], [])
    try:
        done = subprocess.run(
            [*outer, "--proc", "/proc", "--", *inner], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not start: {error}"
    if done.returncode != 0:
        return f"bubblewrap does not start: {done.stderr.strip() or done.returncode}"
    return ""


def enclose(node: NodePlan, enclosure: Enclosure, argv: Sequence[str], info_fd: int) -> list[str]:
    """The command line that starts `argv` as the given node. `info_fd` gets the pid of the node's first process.

    That is `argv` itself: when it dies, however it dies, the kernel ends all that is on the node.
    """
    command = [_tool(), "--as-pid-1", "--info-fd", str(info_fd)]
    command += ["--unshare-pid", "--unshare-uts", "--unshare-ipc", "--hostname", node.name[:64]]
    enclosure.scratch.mkdir(parents=True, exist_ok=True)
    command += [*_system(), "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", *_devices()]
    if os.geteuid() == 0 and Path("/etc/shadow").exists():
        # sshd takes a user whom it does not find there for locked.
        accounts = enclosure.scratch / "shadow"
        accounts.write_text(f"{pwd.getpwuid(0).pw_name}:*:1:0:99999:7:::\n")
        command += ["--ro-bind", str(accounts), "/etc/shadow"]
    homes.prepare(node, enclosure.scratch)
    for seen, folder in node.private:
        source = enclosure.scratch / folder
        source.mkdir(parents=True, exist_ok=True)
        command += ["--bind", str(source), seen]
    command += ["--ro-bind", str(enclosure.hosts), "/etc/hosts"]
    visible = shown(enclosure.visible, node)
    below = [path for path in visible if enclosure.hidden and _is_below(path, enclosure.hidden)]
    above = [path for path in visible if path not in below]
    command += _binds("--ro-bind", above)
    if enclosure.hidden and any(_is_below(enclosure.hidden, path) for path in above):
        command += ["--tmpfs", enclosure.hidden]
    command += [*_binds("--ro-bind", below), *_binds("--bind", enclosure.writable)]
    return [*command, "--", *argv]


def shown(paths: Sequence[str], node: NodePlan) -> list[str]:
    """Those of the machine's folders that a node sees: one that holds a folder of the node's own would hide it."""
    return [path for path in paths if not any(_is_below(seen, path) for seen, _ in node.private)]


def confine(
    argv: Sequence[str], hidden: Sequence[str], shown: Sequence[str], *, is_sshd: bool = False
) -> list[str]:
    """The command line that starts a process of a node, from within it, with less than its agent has.

    Folders in `hidden` are empty for it, but for those in `shown`. sshd starts sessions in its own way and
    refuses to without some capabilities.
    """
    settings = {"hidden": list(hidden), "shown": list(shown), "kept": list(_SSH_NEEDS) if is_sshd else []}
    return [sys.executable, "-I", "-S", str(_CONFINE), json.dumps(settings), *argv]


def _tool() -> str:
    return shutil.which("bwrap") or "bwrap"


def _system() -> Iterator[str]:
    """System folders, read only, without what others than the machine's owner may not read."""
    for path in (Path("/") / name for name in _SYSTEM):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--tmpfs", "/run", "--tmpfs", "/var", "--dir", "/var/tmp")  # noqa: S108 (the node's own)
    resolver = Path("/etc/resolv.conf").resolve()
    if resolver.is_file() and not _is_below(str(resolver), "/etc"):
        yield from ("--ro-bind", str(resolver), str(resolver))
    if os.geteuid() == 0:
        # A process of user 0 owns them, with or without capabilities.
        for path in _restricted(Path("/etc")):
            yield from ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", os.devnull, str(path))


def _restricted(folder: Path) -> Iterator[Path]:
    """Files and folders that not everybody may read."""
    for entry in os.scandir(folder):
        path = Path(entry.path)
        if entry.is_symlink():
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if mode & 0o005 == 0o005:
                yield from _restricted(path)
            else:
                yield path
        elif stat.S_ISREG(mode) and not mode & 0o004:
            yield path


def _devices() -> Iterator[str]:
    yield from ("--dev", "/dev")
    for pattern in _DEVICES:
        for path in sorted(Path("/dev").glob(pattern)):
            yield from ("--dev-bind", str(path), str(path))
    yield from ("--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108 (the node's own)


def _binds(how: str, paths: Sequence[str]) -> Iterator[str]:
    """Each path that exists and is not there already, with the system or within another."""
    bound = [f"/{name}" for name in _SYSTEM] if how == "--ro-bind" else []
    for path in sorted(set(paths), key=lambda text: (text.count("/"), text)):
        if Path(path).exists() and not any(_is_below(path, other) for other in bound):
            bound.append(path)
            yield from (how, path, path)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
