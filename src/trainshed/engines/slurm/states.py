"""What Slurm prints, as values: states, reasons for waiting, devices. Parsers and total maps only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause

FORMAT = "%i|%F|%K|%T|%r|%S|%e|%N|%k"


class JobState(StrEnum):
    """Slurm's states of a job."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    STOPPED = "STOPPED"
    RESIZING = "RESIZING"
    SIGNALING = "SIGNALING"
    STAGE_OUT = "STAGE_OUT"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    REVOKED = "REVOKED"
    UNKNOWN = "UNKNOWN"

    @property
    def is_over(self) -> bool:
        return self in _OVER

    @property
    def is_waiting(self) -> bool:
        return self in _WAITING

    @property
    def end(self) -> tuple[Cause, str]:
        """Why a run ended that did not say so itself."""
        return _OVER.get(self, (Cause.ENGINE, f"Slurm says {self.value}"))


_WAITING = {
    JobState.PENDING,
    JobState.REQUEUED,
    JobState.REQUEUE_FED,
    JobState.REQUEUE_HOLD,
    JobState.SPECIAL_EXIT,
    JobState.RESV_DEL_HOLD,
}
_OVER = {
    JobState.COMPLETED: (Cause.ENGINE, "the Slurm job ended, and its driver recorded no end"),
    JobState.CANCELLED: (Cause.STOP, "cancelled in Slurm (scancel)"),
    JobState.FAILED: (Cause.ENGINE, "the Slurm job failed before its driver could record an end"),
    JobState.TIMEOUT: (Cause.TIMEOUT, "Slurm's time limit for the job was reached"),
    JobState.NODE_FAIL: (Cause.NODE, "a node of the allocation failed (Slurm: NODE_FAIL)"),
    JobState.PREEMPTED: (Cause.PREEMPTED, "a job of higher priority took its nodes (Slurm: PREEMPTED)"),
    JobState.BOOT_FAIL: (Cause.NODE, "a node of the allocation did not boot (Slurm: BOOT_FAIL)"),
    JobState.DEADLINE: (Cause.TIMEOUT, "it could not end before its deadline (Slurm: DEADLINE)"),
    JobState.OUT_OF_MEMORY: (Cause.MEMORY, "it used more memory than Slurm allowed it (OUT_OF_MEMORY)"),
    JobState.REVOKED: (Cause.ENGINE, "another cluster of the federation took it over (Slurm: REVOKED)"),
}

_REASONS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "all nodes that fit it are busy",
    "Priority": "jobs of higher priority are before it",
    "Dependency": "it waits for an earlier run to succeed",
    "DependencyNeverSatisfied": "an earlier run that it waits for did not succeed, so it will never start",
    "BeginTime": "its start time has not come (after a requeue Slurm waits a little)",
    "Cleaning": "Slurm still cleans up after its earlier start",
    "JobHeldUser": "it is held; release it with `scontrol release`",
    "JobHeldAdmin": "the administrator holds it",
    "JobArrayTaskLimit": "as many runs of its array as allowed are active",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "its partition does not have (or allow) that many nodes",
    "PartitionTimeLimit": "its time limit is more than the partition allows",
    "PartitionConfig": "its partition cannot serve such a job",
    "ReqNodeNotAvail": "a node it needs is down, drained or reserved",
    "NodeDown": "a node it needs is down",
    "BadConstraints": "no node has what it asks for",
    "Licenses": "it waits for a licence",
    "Reservation": "its reservation has not begun",
    "InvalidAccount": "its account may not be used",
    "InvalidQOS": "its QOS may not be used",
    "AccountNotAllowed": "its account may not use the partition",
    "QOSNotAllowed": "its QOS may not use the partition",
    "MaxMemPerLimit": "it asks for more memory than a node may give",
    "Prolog": "the node's prolog runs",
    "launch_failed_requeued_held": "it could not be started and is held; release it with `scontrol release`",
}


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One line of squeue."""

    job: str
    """The number by which Slurm's commands take it: `17`, or `17_2` in an array."""
    array: str
    task: int | None
    state: JobState
    reason: str
    start: str
    end: str
    nodes: str
    comment: str


def parse_squeue(text: str) -> list[QueueEntry]:
    found = []
    for line in text.splitlines():
        cells = line.split("|", FORMAT.count("|"))
        if len(cells) <= FORMAT.count("|"):
            continue
        job, array, task, state, reason, start, end, nodes, comment = (cell.strip() for cell in cells)
        number = int(task) if task.isascii() and task.isdigit() else None
        found.append(QueueEntry(job, array, number, state_of(state), reason, start, end, nodes, comment))
    return found


def parse_fields(text: str) -> dict[str, str]:
    """The `Name=value` fields of one scontrol record; a value may hold blanks."""
    pieces = re.split(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=", text.strip())
    found: dict[str, str] = {}
    for name, value in zip(pieces[1::2], pieces[2::2], strict=False):
        found.setdefault(name, value.strip())
    return found


def parse_sacct(text: str) -> dict[str, str]:
    """Job → its state with what follows it (`CANCELLED by 1000`); the first line of a job counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        job, separator, state = line.partition("|")
        if separator and state.strip():
            found.setdefault(job.strip(), state.strip())
    return found


def state_of(text: str) -> JobState:
    try:
        return JobState(text.split()[0].rstrip("+"))
    except (ValueError, IndexError):
        return JobState.UNKNOWN


def waiting_reason(entry: QueueEntry) -> str:
    """Why a job waits, in plain words, with the start Slurm expects."""
    reason = describe_reason(entry.reason)
    if entry.start and entry.start[0].isdigit():
        reason += f"; expected to start {entry.start.replace('T', ' ')}"
    return reason


def describe_reason(reason: str) -> str:
    whole = reason.strip("()")
    name = whole.split(",")[0]
    if name in _REASONS:
        return f"{_REASONS[name]} ({whole})"
    if name.startswith(("Assoc", "QOS", "Max")):
        return f"a limit of its account or QOS is reached ({name}); the administrator can tell which"
    return f"Slurm says: {name}"


def failure_of(state: str, requested: str = "", reason: str = "") -> Failure:
    """The end of a run by Slurm's state; a requested stop explains whatever followed."""
    known = state_of(state)
    if requested:
        return Failure(Cause.STOP, requested)
    if reason.startswith("Dependency"):
        return Failure(Cause.STOP, describe_reason(reason))
    cause, message = known.end
    by = re.search(r"by (\d+)", state)
    return Failure(cause, f"{message} by user {by[1]}" if by else message)


_NOTICE = re.compile(r"\*\*\* JOB \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+)[^*]*)? ?\*\*\*", re.I)
_NOTICES = {
    "TIME LIMIT": JobState.TIMEOUT,
    "PREEMPTION": JobState.PREEMPTED,
    "NODE FAILURE": JobState.NODE_FAIL,
}


def parse_notice(log: str) -> JobState | None:
    """Why Slurm ends a job, by the line it leaves in the job's own log.

    Until the last process is gone its other commands say COMPLETING and no more.
    """
    found = _NOTICE.findall(log)
    return _NOTICES.get(found[-1].strip().upper(), JobState.CANCELLED) if found else None


_DEVICES = re.compile(r"Nodes=(\S+)\s+CPU_IDs=\S+\s+Mem=\S+\s+GRES=(\S*)")
_GRES = re.compile(r"([A-Za-z0-9_]+)(?::[A-Za-z0-9_.-]+)?(?::(\d+)\(IDX:([0-9,-]+)\)|\(CNT:(\d+)\))")


def parse_devices(record: str, name: str) -> dict[str, tuple[int, ...]]:
    """`scontrol show job -d`: node list → indexes of the devices called `name` that the job has there."""
    found: dict[str, tuple[int, ...]] = {}
    for nodes, gres in _DEVICES.findall(record):
        indexes: list[int] = []
        for kind, _, listed, count in _GRES.findall(gres):
            if kind == name:
                indexes += _indexes(listed) if listed else range(int(count))
        if indexes:
            found[nodes] = tuple(indexes)
    return found


def _indexes(text: str) -> list[int]:
    result: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        result += range(int(first), int(last or first) + 1)
    return result
