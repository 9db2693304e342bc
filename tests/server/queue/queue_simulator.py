"""A machine, its teams and their jobs, played event by event: every decision of the queue is carried out as a server
would, and every property of `queue_properties` is checked at every step. It shares no code with the rules."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from trainshed.server.queue.model import (
    OutsideLease,
    QueueDecision,
    QueueState,
    RunningJob,
    TeamQuota,
    WaitingJob,
)
from trainshed.spec.kinds import DeviceKind

GRACE = 120.0
"""The longest grace of a simulated machine."""
Decide = Callable[[QueueState], QueueDecision]


@dataclass
class SimulatedJob:
    """What one job does, which the queue does not know, and where it stands."""

    id: str
    team: str
    kind: DeviceKind
    count: int
    arrives: float
    duration: float
    priority: int = 100
    preemptible: bool = False
    limit: float | None = None
    grace: float = 60.0
    stops_within: float = 1.0
    """The part of its grace that it takes to stop; above 1 it is stuck, which no job should be."""
    after: str | None = None
    cancelled_at: float | None = None
    retries: int = 0
    state: str = "future"
    queued: float = 0.0
    started: float = 0.0
    stop_at: float | None = None
    ticket: int | None = None
    attempt: int = 0

    def must_end_by(self) -> float | None:
        ends = []
        if self.limit is not None:
            ends.append(self.started + self.limit + self.grace)
        if self.stop_at is not None:
            ends.append(self.stop_at + self.grace)
        return min(ends, default=None)

    def rank(self) -> tuple[float, str]:
        return (self.queued - 3600 * self.priority, self.id)


@dataclass
class Scenario:
    devices: dict[DeviceKind, int]
    quotas: dict[str, dict[DeviceKind, int]]
    jobs: list[SimulatedJob]
    outsiders: list[tuple[float, float, DeviceKind, int]] = field(default_factory=list)
    """From when, until when, and how many devices, if so many are free."""
    quota_changes: list[tuple[float, str, DeviceKind, int]] = field(default_factory=list)


class Simulation:
    def __init__(self, scenario: Scenario, decide: Decide, checker: Callable[[Simulation], Checker]) -> None:
        self.scenario = scenario
        self.decide = decide
        self.now = 0.0
        self.jobs = {job.id: job for job in scenario.jobs}
        self.quotas = {team: dict(quota) for team, quota in scenario.quotas.items()}
        self.outside: dict[str, OutsideLease] = {}
        self.served: dict[tuple[str, DeviceKind], float] = {}
        self.passes = 0
        self.newcomers: set[str] = set()
        """Jobs that joined the line since the last pass; with `changed`, what may make a promise worse."""
        self.changed: set[str] = set()
        """Teams whose quota was changed since the last pass; "outside" if an outsider took devices."""
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for job in scenario.jobs:
            self._at(job.arrives, lambda job=job: self._arrive(job))
            if job.cancelled_at is not None:
                self._at(job.cancelled_at, lambda job=job: self._cancel(job))
        for number, (begin, end, kind, count) in enumerate(scenario.outsiders):
            holder = f"outside-{number}"
            self._at(begin, lambda h=holder, k=kind, c=count: self._take(h, k, c))
            self._at(end, lambda h=holder: self.outside.pop(h, None))
        for when, team, kind, quota in scenario.quota_changes:
            self._at(when, lambda t=team, k=kind, q=quota: self._change(t, k, q))
        self.checker = checker(self)

    def run(self, steps: int = 20_000) -> None:
        while self._events:
            steps -= 1
            assert steps > 0, "it does not come to an end"
            when = self._events[0][0]
            self._serve(when)
            self.now = when
            while self._events and self._events[0][0] == when:
                heapq.heappop(self._events)[2]()
            self._pass()
        self.checker.at_the_end()

    def in_state(self, state: str, kind: DeviceKind | None = None) -> list[SimulatedJob]:
        return [j for j in self.jobs.values() if j.state == state and (kind is None or j.kind is kind)]

    def held_by(self, job: SimulatedJob) -> str | None:
        return job.after if job.after is not None and self.jobs[job.after].state != "ended" else None

    def free(self, kind: DeviceKind) -> int:
        outside = sum(lease.count for lease in self.outside.values() if lease.kind is kind)
        return self.scenario.devices[kind] - outside - sum(j.count for j in self.in_state("running", kind))

    def snapshot(self) -> QueueState:
        waiting, running = [], []
        for j in self.jobs.values():
            if j.state == "waiting":
                waiting.append(
                    WaitingJob(j.id, j.team, "someone", j.kind, j.count, j.queued, j.priority, j.preemptible,
                               j.limit, j.grace, self.held_by(j), j.ticket)
                )  # fmt: skip
            elif j.state == "running":
                running.append(
                    RunningJob(j.id, j.team, "someone", j.kind, j.count, j.started, j.priority, j.preemptible,
                               j.limit, j.grace, j.stop_at)
                )  # fmt: skip
        teams = tuple(
            TeamQuota(name, dict(quota), {k: self.served.get((name, k), 0.0) for k in DeviceKind})
            for name, quota in self.quotas.items()
        )
        outside = tuple(self.outside.values())
        return QueueState(
            self.now, self.scenario.devices, teams, tuple(waiting), tuple(running), outside, GRACE
        )

    def _pass(self) -> None:
        self.passes += 1
        state = self.snapshot()
        decision = self.decide(state)
        self.checker.decided(state, decision)
        for job in self.in_state("waiting"):
            job.ticket = decision.tickets.get(job.id)
        for preemption in decision.preemptions:
            self._stop(self.jobs[preemption.victim])
        for job_id in decision.starts:
            self._start(self.jobs[job_id])
        self.checker.carried_out(decision)
        self.newcomers, self.changed = set(), set()

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), action))

    def _tick(self) -> None:
        """A pass without a change: the server makes one every few seconds."""

    def _serve(self, until: float) -> None:
        for job in self.in_state("running"):
            if job.preemptible:
                key = (job.team, job.kind)
                self.served[key] = self.served.get(key, 0.0) + job.count * (until - self.now)

    def _arrive(self, job: SimulatedJob) -> None:
        if job.state == "future":
            job.state, job.queued = "waiting", self.now
            if self.held_by(job) is None:
                self.newcomers.add(job.id)

    def _cancel(self, job: SimulatedJob) -> None:
        if job.state in ("future", "waiting"):
            self._ended(job)
        elif job.state == "running" and job.stop_at is None:
            job.retries = 0
            self._stop(job, back=False)

    def _take(self, holder: str, kind: DeviceKind, count: int) -> None:
        if count := min(count, self.free(kind)):
            self.outside[holder] = OutsideLease(holder, kind, count)
            self.changed.add("outside")

    def _change(self, team: str, kind: DeviceKind, quota: int) -> None:
        self.quotas[team][kind] = quota
        self.changed.add(team)

    def _start(self, job: SimulatedJob) -> None:
        job.state, job.started, job.ticket, job.stop_at = "running", self.now, None, None
        job.attempt += 1
        attempt = job.attempt
        self._at(self.now + job.duration, lambda: self._gone(job, attempt, back=False))
        if job.limit is not None and job.duration > job.limit:
            self._at(self.now + job.limit, lambda: self._limit(job, attempt))

    def _limit(self, job: SimulatedJob, attempt: int) -> None:
        if job.state == "running" and job.attempt == attempt and job.stop_at is None:
            self._stop(job, back=False)

    def _stop(self, job: SimulatedJob, back: bool = True) -> None:
        """SIGTERM; gone when it likes within its grace. `back`: it was preempted and waits again."""
        job.stop_at = self.now
        attempt = job.attempt
        self._at(self.now + job.grace * job.stops_within, lambda: self._gone(job, attempt, back))
        if job.stops_within > 1:
            self._at(self.now + job.grace + 1, self._tick)

    def _gone(self, job: SimulatedJob, attempt: int, back: bool) -> None:
        if job.state != "running" or job.attempt != attempt:
            return
        if back:
            job.state, job.stop_at = "waiting", None
        elif job.retries and job.stop_at is None:
            job.retries -= 1
            job.state, job.queued = "waiting", self.now
            self.newcomers.add(job.id)
        else:
            self._ended(job)

    def _ended(self, job: SimulatedJob) -> None:
        job.state = "ended"
        for other in self.jobs.values():
            if other.after == job.id and other.state == "waiting":
                other.queued = self.now
                self.newcomers.add(other.id)


class Checker:
    """What a simulation tells of its steps."""

    def __init__(self, simulation: Simulation) -> None:
        self.world = simulation

    def decided(self, state: QueueState, decision: QueueDecision) -> None: ...

    def carried_out(self, decision: QueueDecision) -> None: ...

    def at_the_end(self) -> None: ...


def random_scenario(random: Random) -> Scenario:
    """Two days of a machine in which every trouble may come: small numbers, so that jobs meet."""
    kinds = [DeviceKind.ASCEND] if random.random() < 0.8 else [DeviceKind.ASCEND, DeviceKind.NVIDIA]
    devices = {kind: random.randint(2, 9) for kind in kinds}
    teams = ["red", "green", "blue"][: random.randint(1, 3)]
    crush = random.random() < 0.25
    """Many regular jobs, small ones and some for most of the quota, so that there is much to pass."""
    overbooked = random.random() < 0.15
    quotas: dict[str, dict[DeviceKind, int]] = {team: {} for team in teams}
    for kind in kinds:
        for team in teams:
            quotas[team][kind] = random.randint(0, devices[kind]) if overbooked else 0
        for _ in range(0 if overbooked else random.choice([devices[kind], devices[kind] - 1])):
            quotas[random.choice(teams)][kind] += 1
    limits = random.choice([0.5, 0.9, 1.0, 1.0])
    stuck = 0.1 if random.random() < 0.15 else 0.0
    span = random.choice([600.0, 3_000.0, 12_000.0])
    crowd = 0.1 if crush else random.choice([0.1, 0.3, 0.5, 0.7])
    flood = random.random() < 0.5
    """Preemptible jobs come first, small and long, so that regular ones find a full machine."""
    jobs: list[SimulatedJob] = []
    for number in range(random.randint(4, 24)):
        team, kind = random.choice(teams), random.choice(kinds)
        preemptible = random.random() < crowd
        most = devices[kind] if preemptible else quotas[team][kind]
        if most == 0:
            continue
        limit = random.choice([60.0, 120.0, 300.0, 900.0, 1800.0]) if random.random() < limits else None
        duration = random.randint(1, 30) * 60.0
        if limit is not None and random.random() < 0.9:
            duration = min(duration, limit)
        arrives = random.randint(0, 20) * span / 20
        count = random.choice([1, 1, 2, most, random.randint(1, most)])
        if crush:
            arrives, count = arrives / 10, random.choice([1, 1, 2, max(1, most - 2), max(1, most - 1)])
        if preemptible and flood:
            arrives, duration, count = arrives / 4, duration * 4, random.choice([1, 2, 3])
            limit = None if limit is None else duration
        jobs.append(
            SimulatedJob(
                f"j{number:02}", team, kind, min(count, most), arrives, duration,
                priority=random.choice([100, 100, 101, 105]), preemptible=preemptible, limit=limit,
                grace=random.choice([0.0, 10.0, 60.0, GRACE]),
                stops_within=2.5 if random.random() < stuck else random.choice([0.0, 0.5, 1.0]),
                after=random.choice(jobs).id if jobs and random.random() < 0.07 else None,
                cancelled_at=arrives + random.randint(0, 3_000) if random.random() < 0.1 else None,
                retries=1 if random.random() < 0.1 else 0,
            )
        )  # fmt: skip
    outsiders = []
    while random.random() < 0.25 and len(outsiders) < 3:
        begin = random.randint(0, 20) * span / 20
        kind = random.choice(kinds)
        outsiders.append(
            (begin, begin + random.randint(1, 60) * 60.0, kind, random.randint(1, devices[kind]))
        )
    changes = []
    if random.random() < 0.15:
        team, kind = random.choice(teams), random.choice(kinds)
        when = random.randint(1, 20) * span / 20
        changes.append((when, team, kind, random.randint(0, devices[kind])))
        changes.append((when + 3_600, team, kind, quotas[team][kind]))
    return Scenario(devices, quotas, jobs, outsiders, changes)
