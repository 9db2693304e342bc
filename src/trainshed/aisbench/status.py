"""The platform's names for the state of a run, in both of its versions: total maps over RunState."""

from __future__ import annotations

from trainshed.runs.states import RunState

V1 = {
    RunState.PENDING: "JOBSTAT_WAITING",
    RunState.PREPARING: "JOBSTAT_INIT",
    RunState.RUNNING: "JOBSTAT_RUNNING",
    RunState.STOPPING: "JOBSTAT_KILLING",
    RunState.SUCCEEDED: "JOBSTAT_COMPLETED",
    RunState.FAILED: "JOBSTAT_FAILED",
    RunState.STOPPED: "JOBSTAT_KILLED",
    RunState.LOST: "JOBSTAT_LOST",
    RunState.UNREADABLE: "JOBSTAT_UNKNOWN",
}
V2 = {
    RunState.PENDING: "Pending",
    RunState.PREPARING: "Creating",
    RunState.RUNNING: "Running",
    RunState.STOPPING: "Terminating",
    RunState.SUCCEEDED: "Completed",
    RunState.FAILED: "Failed",
    RunState.STOPPED: "Terminated",
    RunState.LOST: "Abnormal",
    RunState.UNREADABLE: "Abnormal",
}


def status_name(api: str, state: RunState) -> str:
    return (V2 if api == "V2" else V1)[state]
