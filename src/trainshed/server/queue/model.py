"""What the queue is told and what it decides. Times are seconds of one clock, the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainshed.spec.kinds import DeviceKind


@dataclass(frozen=True, slots=True)
class OutsideLease:
    """Devices that no job of the queue holds: runs started without the server, or an ended run's lease."""

    holder: str
    kind: DeviceKind
    count: int


@dataclass(frozen=True, slots=True)
class TeamQuota:
    name: str
    quota: Mapping[DeviceKind, int]
    served: Mapping[DeviceKind, float] = field(default_factory=dict)
    """Device-seconds that the team's preemptible jobs have used lately."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    id: str
    team: str
    user: str
    kind: DeviceKind
    count: int
    queued: float
    """When it was submitted, its dependency ended or its retry was due, whichever is last; preemption keeps it."""
    priority: int = 100
    preemptible: bool = False
    limit: float | None = None
    grace: float = 60.0
    held_by: str | None = None
    """The job whose end it waits for. A held job is in nobody's way."""
    ticket: int | None = None
    """From an earlier decision: its turn has come, and the lowest ticket of all teams is served first."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    id: str
    team: str
    user: str
    kind: DeviceKind
    count: int
    started: float
    """When its start was decided: the limit counts from there. At the limit it is told to stop."""
    priority: int = 100
    preemptible: bool = False
    limit: float | None = None
    grace: float = 60.0
    stop_at: float | None = None
    """When it was told to stop. Its devices are free at most its grace later."""


@dataclass(frozen=True, slots=True)
class QueueState:
    now: float
    devices: Mapping[DeviceKind, int]
    teams: tuple[TeamQuota, ...]
    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    outside: tuple[OutsideLease, ...] = ()
    longest_grace: float = 300.0
    """The longest grace that a preemptible job may ask for."""


class WaitCause(StrEnum):
    """Why a job waits, and the rule that says so."""

    IMPOSSIBLE = "R0: more than it can ever get"
    QUOTA = "R1: the team's quota is in use"
    HELD = "R2: another job must end first"
    ROOM = "R3: preemptible jobs are making room"
    SHORT = "R3: the machine has too few devices for all quotas"
    BEHIND = "R4: an earlier job of the team must not be delayed"
    SET_ASIDE = "R5: free devices are set aside"
    DEVICES = "R5: too few devices are free"

    @property
    def rule(self) -> str:
        return self.value[:2]


class NoPromise(StrEnum):
    """Why no time is promised."""

    IMPOSSIBLE = "it cannot start before its quota or the machine is changed"
    HELD = "nobody knows when the job that it depends on ends"
    BEHIND = "a time is promised only to the first waiting job of a team"
    PREEMPTIBLE = "preemptible jobs are promised nothing"
    NO_LIMIT = "it waits for a job without a time limit"
    OVERDUE = "it waits for a job that should have ended by now"
    OUTSIDE = "runs outside the queue hold devices of the quotas"
    OVERBOOKED = "the quotas together are more than the machine has"


@dataclass(frozen=True, slots=True)
class WaitNumbers:
    """One team's view of one kind of device after a decision; `used` is of its quota, turns that have come included."""

    kind: DeviceKind
    devices: int
    free: int
    outside: int
    quota: int
    used: int


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why one job or several of a team wait. Either `promised` (it starts by then at the latest) or `unknown` is set."""

    cause: WaitCause
    numbers: WaitNumbers
    waits_for: tuple[str, ...] = ()
    """Jobs and holders of outside leases; whoever shows them checks which ones the reader may see."""
    promised: float | None = None
    unknown: NoPromise | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    victim: str
    beneficiaries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """What to carry out, in this order: record all tickets, tell victims to stop, start jobs."""

    starts: tuple[str, ...]
    preemptions: tuple[Preemption, ...]
    tickets: Mapping[str, int]
    """Of every job that still waits although its turn has come; all others have none."""
    reasons: Mapping[str, WaitReason]
    """For every waiting job that does not start."""


@dataclass(frozen=True, slots=True)
class QueueRefusal:
    """What cannot be promised or can never run (R0): the field, its value, and the most that is possible."""

    field: str
    value: float
    most: float
    message: str
