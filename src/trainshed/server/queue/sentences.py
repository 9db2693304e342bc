"""A waiting job's reason in plain English. Jobs of other teams are counted, never named."""

from __future__ import annotations

from datetime import UTC, datetime

from trainshed.server.queue.model import WaitCause, WaitingJob, WaitReason


def describe(job: WaitingJob, reason: WaitReason) -> str:
    """Two sentences: why the job waits, and by when it starts or why nobody can say."""
    n = reason.numbers
    names = ", ".join(reason.waits_for)
    asked = f"{job.count} {n.kind} {'device' if job.count == 1 else 'devices'}"
    match reason.cause:
        case WaitCause.IMPOSSIBLE:
            most = f"the machine has {n.devices}" if job.preemptible else f"team {job.team} may use {n.quota}"
            why = f"It needs {asked}, and {most}."
        case WaitCause.HELD:
            why = f"It needs {asked} after job {names} has ended."
        case WaitCause.QUOTA:
            why = f"It needs {asked}; team {job.team} uses {n.used} of its quota of {n.quota} (waits for {names})."
        case WaitCause.ROOM:
            why = f"Its turn has come: preemptible jobs are making room for its {asked}; {n.free} are free."
        case WaitCause.SHORT:
            why = f"Its turn has come, but {asked} cannot be made free: {n.outside} of {n.devices} are held outside the queue."
        case WaitCause.BEHIND:
            why = f"It needs {asked}, and would delay job {names}, which is before it in team {job.team}."
        case WaitCause.SET_ASIDE:
            why = f"It needs {asked}; {n.free} are free, but set aside for jobs that are before it."
        case WaitCause.DEVICES:
            why = f"It needs {asked}; {n.free} of {n.devices} are free."
    if reason.promised is None:
        return f"{why} No time is promised: {reason.unknown}."
    return f"{why} It starts by {datetime.fromtimestamp(reason.promised, UTC):%Y-%m-%d %H:%M:%S} UTC at the latest."
