"""R0: what can never run is refused with the number, the admin is told what cannot be promised; and "what if?"."""

from __future__ import annotations

from dataclasses import replace

from trainshed.server.queue.model import QueueRefusal, QueueState, WaitingJob, WaitReason
from trainshed.server.queue.rules import decide


def refuse(state: QueueState, job: WaitingJob) -> QueueRefusal | None:
    """Why the job could never run on this machine, or with its team's quota."""
    devices = state.devices.get(job.kind, 0)
    quota = next((team.quota.get(job.kind, 0) for team in state.teams if team.name == job.team), 0)
    if job.count < 1:
        return QueueRefusal("count", job.count, devices, f"{job.count} devices: ask for at least 1")
    if job.count > devices:
        message = f"{job.count} {job.kind} devices: the machine has {devices}; ask for no more"
        return QueueRefusal("count", job.count, devices, message)
    if job.count > quota and not job.preemptible:
        message = f"{job.count} {job.kind} devices: team {job.team} may use {quota}; ask for no more, or let the job be preemptible"
        return QueueRefusal("count", job.count, quota, message)
    if job.preemptible and job.grace > state.longest_grace:
        most = state.longest_grace
        message = f"grace of {job.grace:g} s: preemptible jobs get at most {most:g} s here; ask for no more"
        return QueueRefusal("grace", job.grace, most, message)
    return None


def overbookings(state: QueueState) -> tuple[QueueRefusal, ...]:
    """Kinds of device of which the teams' quotas together are more than the machine has: R3 is not promised."""
    found = []
    for kind in sorted({*state.devices, *(kind for team in state.teams for kind in team.quota)}):
        quotas, devices = sum(team.quota.get(kind, 0) for team in state.teams), state.devices.get(kind, 0)
        if quotas > devices:
            message = f"quotas of {quotas} {kind} devices: the machine has {devices}, so no team is promised its quota; lower them"
            found.append(QueueRefusal("quota", quotas, devices, message))
    return tuple(found)


def what_if(state: QueueState, job: WaitingJob) -> QueueRefusal | WaitReason | None:
    """What would become of a job that is submitted now; None if it would start at once."""
    request = replace(job, queued=state.now, ticket=None)
    decision = decide(replace(state, waiting=(*state.waiting, request)))
    return refuse(state, job) or decision.reasons.get(job.id)
