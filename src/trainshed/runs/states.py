"""The states of a run, with total maps: every member has an answer to every question."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """Where a run is. A final state never changes again."""

    PENDING = "pending"
    PREPARING = "preparing"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    UNREADABLE = "unreadable"

    @property
    def is_final(self) -> bool:
        return _FINAL[self]

    @property
    def exit_code(self) -> int:
        """What a command that waited for the run returns when no rank gave an exit code."""
        return _EXIT[self]

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_FINAL = {
    RunState.PENDING: False,
    RunState.PREPARING: False,
    RunState.RUNNING: False,
    RunState.STOPPING: False,
    RunState.SUCCEEDED: True,
    RunState.FAILED: True,
    RunState.STOPPED: True,
    RunState.LOST: True,
    RunState.UNREADABLE: False,
}
_EXIT = {
    RunState.PENDING: 75,
    RunState.PREPARING: 75,
    RunState.RUNNING: 75,
    RunState.STOPPING: 75,
    RunState.SUCCEEDED: 0,
    RunState.FAILED: 1,
    RunState.STOPPED: 130,
    RunState.LOST: 70,
    RunState.UNREADABLE: 70,
}
_MEANING = {
    RunState.PENDING: "waits for nodes",
    RunState.PREPARING: "nodes fetch code and data and wait for one another",
    RunState.RUNNING: "ranks run",
    RunState.STOPPING: "ranks are being stopped and outputs saved",
    RunState.SUCCEEDED: "every rank ended with 0",
    RunState.FAILED: "a rank, a node or a step failed; the reason says which",
    RunState.STOPPED: "somebody stopped it",
    RunState.LOST: "every process of the run is gone and none recorded an end",
    RunState.UNREADABLE: "its record cannot be read; the reason says why",
}


class Cause(StrEnum):
    """Why a run did not succeed."""

    RANK = "rank"
    NODE = "node"
    STAGING = "staging"
    HOOK = "hook"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    DRIVER = "driver"
    STOP = "stop"
    ENGINE = "engine"
    PREEMPTED = "preempted"

    @property
    def is_retried(self) -> bool:
        """Whether another attempt may help."""
        return _RETRIED[self]


_RETRIED = {
    Cause.RANK: True,
    Cause.NODE: True,
    Cause.STAGING: True,
    Cause.HOOK: True,
    Cause.TIMEOUT: False,
    Cause.MEMORY: True,
    Cause.DRIVER: False,
    Cause.STOP: False,
    Cause.ENGINE: True,
    Cause.PREEMPTED: True,
}
