"""The processes of one run, by what they are. Only what provably belongs to the run is ever named here."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from support import processes_of
from trainshed.engines.cluster import guard

_STEP = re.compile(r"^slurmstepd: \[(\d+)\.")
_CONMON = re.compile(r"/conmon\b")


def processes(run: str, cluster: Path | None = None, job: str = "") -> dict[str, list[int]]:
    """By kind: driver, guard, agent-0, … `cluster` and `job` are the folder and number of a Slurm job."""
    found: dict[str, list[int]] = {}
    for pid, line in processes_of(run).items():
        if kind := _kind(pid, line):
            found.setdefault(kind, []).append(pid)
    for shim in {_parent(pid) for pid in found.get("rank", ())}:
        # A container's monitor is the parent of its first process, and says nothing of the run itself.
        while shim > 1:
            if _CONMON.search(_line(shim).partition(" ")[0]):
                found.setdefault("conmon", []).append(shim)
                break
            shim = _parent(shim)
    if cluster and job:
        found |= {"stepd": stepds} if (stepds := _stepds(cluster, job)) else {}
    return found


def _kind(pid: int, line: str) -> str:
    program = Path(line.partition(" ")[0]).name
    node = line.rstrip().rpartition(" ")[2]
    if "trainshed.engines.local.driver" in line or "trainshed.engines.slurm.driver" in line:
        return "guard" if _comm(pid) == guard.NAME else "driver"
    if "trainshed.engines.cluster.starter" in line:
        return "srun" if program == "srun" else f"starter-{_variable(pid, 'SLURM_NODEID')}"
    if "trainshed.agent.main" in line:
        return f"bwrap-{node}" if program == "bwrap" else f"agent-{node}"
    if program == "podman":
        return "podman"
    if "work.sh" in line:
        return "rank"
    return "grandchild" if "sleep" in line else ""


def _stepds(cluster: Path, job: str) -> list[int]:
    """Slurm's own step processes of a job of this cluster, by the files that they have open."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        match = _STEP.match(_line(int(entry.name)))
        if match and match[1] == job and _opens(entry, cluster):
            found.append(int(entry.name))
    return found


def _opens(entry: Path, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        links = [entry / "cwd", *(entry / "fd").iterdir()]
        return any(os.readlink(link).startswith(f"{folder}/") for link in links)  # noqa: PTH115
    return False


def is_frozen(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    return False


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def _line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _variable(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if item.startswith(name.encode() + b"="):
                return item.partition(b"=")[2].decode(errors="replace")
    return "?"
