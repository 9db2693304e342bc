"""A waiting job's reason in plain English."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from trainshed.server.queue.model import WaitCause, WaitingJob, WaitReason


def describe(job: WaitingJob, reason: WaitReason, may_see: Callable[[str], bool]) -> str:
    """Why the job waits, for whom, and by when it starts. What the reader may not see is counted, not named."""
    n, devices = (
        reason.numbers,
        f"{job.count} {reason.numbers.kind} {'device' if job.count == 1 else 'devices'}",
    )
    why = {
        WaitCause.IMPOSSIBLE: f"team {job.team} has a quota of {n.quota}, and the machine {n.devices} devices",
        WaitCause.HELD: "another job must end first",
        WaitCause.QUOTA: f"team {job.team} uses {n.used} of its quota of {n.quota}",
        WaitCause.ROOM: f"its turn has come, {n.free} are free, and preemptible jobs are making room",
        WaitCause.SHORT: f"its turn has come, but so many of {n.devices} cannot be made free",
        WaitCause.BEHIND: f"it would delay the job that is first in team {job.team}",
        WaitCause.SET_ASIDE: f"{n.free} are free, but set aside",
        WaitCause.DEVICES: f"{n.free} of {n.devices} are free",
    }[reason.cause]
    names = [name for name in dict.fromkeys(reason.waits_for) if may_see(name)]
    if hidden := len(set(reason.waits_for)) - len(names):
        names.append(f"{hidden} of other teams")
    waits_for = f" It waits for {', '.join(names)}." if names else ""
    if reason.promised is None:
        return f"It needs {devices}: {why}.{waits_for} No time is promised: {reason.unknown}."
    by = datetime.fromtimestamp(reason.promised, UTC)
    return f"It needs {devices}: {why}.{waits_for} It starts by {by:%Y-%m-%d %H:%M:%S} UTC at the latest."
