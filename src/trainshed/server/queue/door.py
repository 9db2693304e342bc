"""R0: what can never run is refused with the number, the admin is told what cannot be promised; and "what if?"."""

from __future__ import annotations

from dataclasses import replace

from trainshed.server.queue.model import QueueRefusal, QueueState, WaitingJob, WaitReason
from trainshed.server.queue.rules import decide


def refuse(state: QueueState, job: WaitingJob) -> QueueRefusal | None:
    """Why the job could never run on this machine, or with its team's quota."""
    devices = state.devices.get(job.kind, 0)
    quota = next((team.quota.get(job.kind, 0) for team in state.teams if team.name == job.team), 0)
    asked, grace = f"{job.count} {job.kind} devices", state.longest_grace
    if job.count < 1:
        return QueueRefusal("count", job.count, devices, f"{asked}: ask for at least 1")
    if job.count > devices:
        return QueueRefusal(
            "count", job.count, devices, f"{asked}: the machine has {devices}; ask for no more"
        )
    if job.count > quota and not job.preemptible:
        message = f"{asked}: team {job.team} may use {quota}; ask for no more, or let the job be preemptible"
        return QueueRefusal("count", job.count, quota, message)
    if job.preemptible and job.grace > grace:
        message = f"grace of {job.grace:g} s: a preemptible job gets at most {grace:g} s; ask for no more"
        return QueueRefusal("grace", job.grace, grace, message)
    return None


def overbookings(state: QueueState) -> tuple[QueueRefusal, ...]:
    """Kinds of device of which the teams' quotas together are more than the machine has: R3 is not promised."""
    found = []
    for kind in sorted({*state.devices, *(kind for team in state.teams for kind in team.quota)}):
        quotas, devices = sum(team.quota.get(kind, 0) for team in state.teams), state.devices.get(kind, 0)
        if quotas > devices:
            message = f"quotas of {quotas} {kind} devices: the machine has {devices}, so no quota is promised"
            found.append(QueueRefusal("quota", quotas, devices, f"{message}; lower them"))
    return tuple(found)


def what_if(state: QueueState, job: WaitingJob) -> QueueRefusal | WaitReason | None:
    """What would become of a job that is submitted now; None if it would start at once."""
    if refusal := refuse(state, job):
        return refusal
    request = replace(job, queued=state.now, ticket=None)
    return decide(replace(state, waiting=(*state.waiting, request))).reasons.get(job.id)
