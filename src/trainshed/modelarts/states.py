"""The states of a training job, as both versions of ModelArts name them, and ours: total maps both ways.

Version 1 numbers 23 states; clients of it know only the first 22, so what we answer is never the last.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from trainshed.runs.states import RunState


class JobStatus(IntEnum):
    """A state of version 1; clients print it as `JOBSTAT_<name>`."""

    UNKNOWN = 0
    INIT = 1
    IMAGE_CREATING = 2
    IMAGE_FAILED = 3
    SUBMIT_TRYING = 4
    SUBMIT_FAILED = 5
    DELETE_FAILED = 6
    WAITING = 7
    RUNNING = 8
    KILLING = 9
    COMPLETED = 10
    FAILED = 11
    KILLED = 12
    CANCELED = 13
    LOST = 14
    SCALING = 15
    SUBMIT_MODEL_FAILED = 16
    DEPLOY_SERVICE_FAILED = 17
    CHECK_INIT = 18
    CHECK_RUNNING = 19
    CHECK_RUNNING_COMPLETED = 20
    CHECK_FAILED = 21
    MOUNT_FAILED = 22

    @property
    def status_name(self) -> str:
        return f"JOBSTAT_{self.name}"

    @property
    def run_state(self) -> RunState:
        return _FROM_STATUS[self]

    @classmethod
    def of(cls, state: RunState) -> JobStatus:
        return _TO_STATUS[state]


class JobPhase(StrEnum):
    """A state of version 2."""

    CREATING = "Creating"
    PENDING = "Pending"
    RUNNING = "Running"
    FAILED = "Failed"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    ABNORMAL = "Abnormal"

    @property
    def run_state(self) -> RunState:
        return _FROM_PHASE[self]

    @property
    def can_be_terminated(self) -> bool:
        """Whether the platform accepts a request to stop the job."""
        return self in (JobPhase.CREATING, JobPhase.PENDING, JobPhase.RUNNING)

    @classmethod
    def of(cls, state: RunState) -> JobPhase:
        return _TO_PHASE[state]


def status_name(api: str, state: RunState) -> str:
    """What clients of this version print for a run's state."""
    return JobPhase.of(state).value if api == "V2" else JobStatus.of(state).status_name


_TO_STATUS = {
    RunState.PENDING: JobStatus.WAITING,
    RunState.PREPARING: JobStatus.INIT,
    RunState.RUNNING: JobStatus.RUNNING,
    RunState.STOPPING: JobStatus.KILLING,
    RunState.SUCCEEDED: JobStatus.COMPLETED,
    RunState.FAILED: JobStatus.FAILED,
    RunState.STOPPED: JobStatus.KILLED,
    RunState.LOST: JobStatus.LOST,
    RunState.UNREADABLE: JobStatus.UNKNOWN,
}
_FROM_STATUS = {
    JobStatus.UNKNOWN: RunState.UNREADABLE,
    JobStatus.INIT: RunState.PREPARING,
    JobStatus.IMAGE_CREATING: RunState.PREPARING,
    JobStatus.IMAGE_FAILED: RunState.FAILED,
    JobStatus.SUBMIT_TRYING: RunState.PENDING,
    JobStatus.SUBMIT_FAILED: RunState.FAILED,
    JobStatus.DELETE_FAILED: RunState.UNREADABLE,  # how the job itself ended is not told any more
    JobStatus.WAITING: RunState.PENDING,
    JobStatus.RUNNING: RunState.RUNNING,
    JobStatus.KILLING: RunState.STOPPING,
    JobStatus.COMPLETED: RunState.SUCCEEDED,
    JobStatus.FAILED: RunState.FAILED,
    JobStatus.KILLED: RunState.STOPPED,
    JobStatus.CANCELED: RunState.STOPPED,
    JobStatus.LOST: RunState.LOST,
    JobStatus.SCALING: RunState.RUNNING,
    JobStatus.SUBMIT_MODEL_FAILED: RunState.FAILED,
    JobStatus.DEPLOY_SERVICE_FAILED: RunState.FAILED,
    JobStatus.CHECK_INIT: RunState.PREPARING,
    JobStatus.CHECK_RUNNING: RunState.PREPARING,
    JobStatus.CHECK_RUNNING_COMPLETED: RunState.PREPARING,
    JobStatus.CHECK_FAILED: RunState.FAILED,
    JobStatus.MOUNT_FAILED: RunState.FAILED,
}
_TO_PHASE = {
    RunState.PENDING: JobPhase.PENDING,
    RunState.PREPARING: JobPhase.CREATING,
    RunState.RUNNING: JobPhase.RUNNING,
    RunState.STOPPING: JobPhase.TERMINATING,
    RunState.SUCCEEDED: JobPhase.COMPLETED,
    RunState.FAILED: JobPhase.FAILED,
    RunState.STOPPED: JobPhase.TERMINATED,
    RunState.LOST: JobPhase.ABNORMAL,
    RunState.UNREADABLE: JobPhase.ABNORMAL,
}
_FROM_PHASE = {
    JobPhase.CREATING: RunState.PREPARING,
    JobPhase.PENDING: RunState.PENDING,
    JobPhase.RUNNING: RunState.RUNNING,
    JobPhase.FAILED: RunState.FAILED,
    JobPhase.COMPLETED: RunState.SUCCEEDED,
    JobPhase.TERMINATING: RunState.STOPPING,
    JobPhase.TERMINATED: RunState.STOPPED,
    JobPhase.ABNORMAL: RunState.LOST,
}
