"""Which processes a run has, by what they are: for tests that kill them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from support import processes_of
from trainshed.engines.cluster import guard


def kinds(run: str) -> dict[str, list[int]]:
    """The run's processes by what they are; the rank's script is called t.py or t.sh."""
    found: dict[str, list[int]] = {}
    for pid, line in processes_of(run).items():
        if "engines.local.driver" in line:
            kind = "guard" if _comm(pid) == guard.NAME else "driver"
        elif "bwrap" in line.partition(" ")[0]:
            kind = "sandbox"
        elif "agent.main" in line:
            kind = "coordinator" if line.rstrip().endswith("--node 0") else "agent"
        elif "t.py" in line or "t.sh" in line:
            kind = "rank"
        elif "sleep" in line:
            kind = "grandchild"
        else:
            continue
        found.setdefault(kind, []).append(pid)
    return found


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
