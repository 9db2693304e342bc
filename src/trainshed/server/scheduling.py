"""What the loop asks the queue, and the simplest answer to it: first come, first served.

`decide` is pure: a state in, a decision out. The loop carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run in the queue, and what it needs: a number of devices of one pool."""

    id: str
    team: str
    owner: str
    pool: str
    devices: int
    submitted: float
    priority: int = 100
    preemptible: bool = False


@dataclass(frozen=True, slots=True)
class PoolState:
    """All that a decision depends on. `waiting` is in the order of submission."""

    waiting: tuple[QueuedRun, ...]
    free: Mapping[str, int]
    """Devices of each pool whose lease is gone."""
    size: Mapping[str, int]
    quotas: Mapping[tuple[str, str], int] = field(default_factory=dict)
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """Which runs start now, in this order, and why each of the others waits."""

    start: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)


Decide = Callable[[PoolState], Decision]


def first_come(state: PoolState) -> Decision:
    """In the order of submission; nobody passes the first that does not fit."""
    free = dict(state.free)
    heads: dict[str, QueuedRun] = {}
    start, reasons = [], {}
    for job in state.waiting:
        head = heads.get(job.pool)
        if head is not None:
            reasons[job.id] = f"waits behind {head.id}, which was submitted earlier"
        elif job.devices <= free.get(job.pool, 0):
            free[job.pool] -= job.devices
            start.append(job.id)
        else:
            heads[job.pool] = job
            there = f"{free.get(job.pool, 0)} of {state.size.get(job.pool, 0)} are free"
            reasons[job.id] = f"needs {job.devices} {job.pool} devices, {there}; it is the next to start"
    return Decision(tuple(start), reasons)
