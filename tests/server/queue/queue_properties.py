"""What is true at every step of a simulation, whatever the rules do to make it so. Each property is a method that
raises `Broken` with the property's name; none calls the code that it judges."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from queue_simulator import GRACE, Checker, SimulatedJob, Simulation

from trainshed.server.queue.model import NoPromise, QueueDecision, QueueState, WaitCause, WaitReason
from trainshed.server.queue.sentences import describe
from trainshed.spec.kinds import DeviceKind

HOUR = 3600.0
Releases = list[tuple[float | None, int]]


class Broken(AssertionError):
    def __init__(self, property_name: str, now: float, details: object) -> None:
        super().__init__(f"{property_name} at {now}: {details}")
        self.property_name = property_name


class Properties(Checker):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.promises: dict[str, float] = {}
        self.entitled_since: dict[str, float] = {}
        self.seen: set[str] = set()
        """What happened in this simulation at all."""

    def decided(self, state: QueueState, decision: QueueDecision) -> None:
        self.state, self.decision = state, decision
        self.starting = [self.world.jobs[i] for i in decision.starts]
        self.victims = [self.world.jobs[p.victim] for p in decision.preemptions]
        self.every_waiting_job_starts_or_has_a_reason()
        self.promises_never_get_worse()
        for kind in state.devices:
            self.starts_fit_free_devices(kind)
            self.quotas_hold(kind)
            self.turns_are_kept_in_order(kind)
            self.preemption_is_for_regular_jobs_and_needed(kind)
            self.victims_are_the_least_important(kind)
            self.nothing_set_aside_is_taken(kind)
            self.free_devices_are_used(kind)
            self.least_served_team_is_first(kind)
            for team in self.world.quotas:
                self.team_order_and_backfill(team, kind)

    def carried_out(self, decision: QueueDecision) -> None:
        for kind in self.world.scenario.devices:
            self.check(self.world.free(kind) >= 0, "never over-committed", kind)
            self.regular_jobs_within_quota_start_within_the_longest_grace(kind)
        self.seen |= {reason.cause.name for reason in decision.reasons.values()}
        happened = {
            "start": decision.starts,
            "victim": decision.preemptions,
            "turn": decision.tickets,
            "promise": self.promises,
        }
        self.seen |= {name for name, what in happened.items() if what}

    def at_the_end(self) -> None:
        left = [
            job.id
            for job in self.world.jobs.values()
            if job.state != "ended"
            and job.count <= self.world.scenario.devices[job.kind]
            and (job.preemptible or job.count <= self.world.quotas[job.team][job.kind])
            and self.world.held_by(job) is None
        ]
        self.check(not left, "nobody is left waiting on an idle machine", left)

    def check(self, holds: bool, name: str, details: object) -> None:
        if not holds:
            raise Broken(name, self.world.now, details)

    # What the world looks like

    def waiting(self, kind: DeviceKind) -> list[SimulatedJob]:
        """Jobs in line after this decision: not held, not starting."""
        return [
            j
            for j in self.world.in_state("waiting", kind)
            if j.id not in self.decision.starts and self.world.held_by(j) is None
        ]

    def running(self, kind: DeviceKind, preemptible: bool, team: str | None = None) -> list[SimulatedJob]:
        jobs = self.world.in_state("running", kind)
        return [j for j in jobs if j.preemptible is preemptible and team in (None, j.team)]

    def overdue(self, kind: DeviceKind) -> set[str]:
        jobs = self.world.in_state("running", kind)
        return {j.id for j in jobs if (end := j.must_end_by()) is not None and end < self.world.now}

    def outside(self, kind: DeviceKind) -> set[str]:
        return {lease.holder for lease in self.world.outside.values() if lease.kind is kind}

    def owed(self, kind: DeviceKind) -> int:
        return sum(
            max(quota.get(kind, 0), _sum(self.running(kind, False, team)))
            for team, quota in self.world.quotas.items()
        )

    def guaranteed(self, kind: DeviceKind) -> bool:
        """The machine can give every team its quota at once."""
        outside = sum(lease.count for lease in self.world.outside.values() if lease.kind is kind)
        return self.owed(kind) + outside <= self.world.scenario.devices[kind]

    def ticketed(self, kind: DeviceKind) -> list[SimulatedJob]:
        """Jobs that wait with their turn come, in order."""
        found = [j for j in self.world.in_state("waiting", kind) if j.id in self.decision.tickets]
        return sorted(found, key=lambda j: self.decision.tickets[j.id])

    def feasible(self, kind: DeviceKind) -> list[SimulatedJob]:
        """Those of them for whom devices are coming."""
        return [j for j in self.ticketed(kind) if self.decision.reasons[j.id].cause is WaitCause.ROOM]

    # The properties

    def every_waiting_job_starts_or_has_a_reason(self) -> None:
        name = "every waiting job starts or has a true reason"
        waiting = {job.id: job for job in self.state.waiting}
        starts = self.decision.starts
        self.check(len(set(starts)) == len(starts), name, "started twice")
        self.check(set(starts) | set(self.decision.reasons) == set(waiting), name, "not all jobs")
        self.check(not set(starts) & set(self.decision.reasons), name, "both")
        self.check(not set(starts) & set(self.decision.tickets), name, "started and still ticketed")
        known = set(self.world.jobs) | set(self.world.outside)
        for job_id, reason in self.decision.reasons.items():
            job = self.world.jobs[job_id]
            self.check((reason.promised is None) is (reason.unknown is not None), name, reason)
            self.check(reason.promised is None or self.world.now <= reason.promised < inf, name, reason)
            self.check(set(reason.waits_for) <= known and job_id not in reason.waits_for, name, reason)
            self.check(f" {job.count} " in describe(waiting[job_id], reason, bool), name, reason)
            self.reason_is_true(job, reason, name)

    def reason_is_true(self, job: SimulatedJob, reason: WaitReason, name: str) -> None:
        world, numbers = self.world, reason.numbers
        starting = [j for j in self.starting if j.kind is job.kind]
        regular = [j for j in starting if not j.preemptible and j.team == job.team]
        tickets = [j for j in self.ticketed(job.kind) if j.team == job.team]
        self.check(numbers.devices == world.scenario.devices[job.kind], name, reason)
        self.check(numbers.quota == world.quotas[job.team].get(job.kind, 0), name, reason)
        self.check(numbers.free == world.free(job.kind) - _sum(starting), name, reason)
        used = _sum(self.running(job.kind, False, job.team)) + _sum(regular) + _sum(tickets)
        self.check(numbers.used == used, name, (reason, used))
        held = self.world.held_by(job)
        possible = job.count <= (numbers.devices if job.preemptible else min(numbers.quota, numbers.devices))
        match reason.cause:
            case WaitCause.HELD:
                self.check(held is not None and reason.waits_for == (held,), name, reason)
            case WaitCause.IMPOSSIBLE:
                self.check(not possible, name, reason)
            case WaitCause.QUOTA:
                own = {j.id for j in [*self.running(job.kind, False, job.team), *regular, *tickets]}
                self.check(job.count > numbers.quota - used, name, reason)
                named = set(reason.waits_for) - self.outside(job.kind) - self.overdue(job.kind)
                self.check(named <= own and bool(reason.waits_for), name, reason)
            case WaitCause.ROOM:
                self.check(job.id in self.decision.tickets, name, reason)
                stopping = {v.id for v in self.victims} | {
                    j.id for j in self.running(job.kind, True) if j.stop_at is not None
                }
                self.check(set(reason.waits_for) & stopping != set(), name, reason)
            case WaitCause.SHORT:
                self.check(not self.guaranteed(job.kind), name, reason)
                self.check(reason.unknown in (NoPromise.OUTSIDE, NoPromise.OVERBOOKED), name, reason)
            case WaitCause.BEHIND:
                ahead = [world.jobs[i] for i in reason.waits_for]
                self.check(all(a.rank() < job.rank() and a.team == job.team for a in ahead), name, reason)
                self.check(bool(ahead), name, reason)
            case WaitCause.SET_ASIDE:
                self.check(job.preemptible and job.count <= numbers.free, name, reason)
                self.check(bool(reason.waits_for), name, reason)
            case WaitCause.DEVICES:
                self.check(job.preemptible and job.count > numbers.free, name, reason)
        if reason.unknown in (NoPromise.OUTSIDE, NoPromise.OVERBOOKED):
            overbooked = self.owed(job.kind) > numbers.devices
            self.check((reason.unknown is NoPromise.OVERBOOKED) is overbooked, name, reason)
            self.check(not self.guaranteed(job.kind), name, reason)
            self.check(set(reason.waits_for) >= self.outside(job.kind), name, reason)
        if held is None and possible:
            self.check(reason.cause not in (WaitCause.HELD, WaitCause.IMPOSSIBLE), name, reason)

    def promises_never_get_worse(self) -> None:
        name = "a promise never gets worse without a listed cause"
        promises = {i: r.promised for i, r in self.decision.reasons.items() if r.promised is not None}
        for job_id, old in self.promises.items():
            job = self.world.jobs[job_id]
            if job.state != "waiting":
                continue
            new = self.world.now if job_id in self.decision.starts else promises.get(job_id)
            if new is not None and new <= old:
                continue
            ahead = [self.world.jobs[i] for i in self.world.newcomers]
            passed = any(
                a.team == job.team and a.kind is job.kind and not a.preemptible and a.rank() < job.rank()
                for a in ahead
            )
            if passed or job.team in self.world.changed:
                continue
            reason = self.decision.reasons.get(job_id)
            self.check(reason is not None, name, f"{job_id} started after {old}")
            assert reason is not None
            named = set(reason.waits_for)
            for other in reason.waits_for:
                if other in self.decision.reasons:
                    named |= set(self.decision.reasons[other].waits_for)
            match reason.unknown:
                case None:
                    held = "outside" in self.world.changed and named & self.outside(job.kind)
                    self.check(bool(held), name, (job_id, old, new, reason))
                case NoPromise.OUTSIDE:
                    self.check(not self.guaranteed(job.kind), name, reason)
                    self.check(
                        self.outside(job.kind) <= named and self.outside(job.kind) != set(), name, reason
                    )
                case NoPromise.OVERBOOKED:
                    own_fault = self.owed(job.kind) > self.world.scenario.devices[job.kind]
                    self.check(own_fault and self.outside(job.kind) <= named, name, reason)
                case NoPromise.OVERDUE:
                    self.check(bool(self.overdue(job.kind) & named), name, reason)
                case _:
                    self.check(False, name, (job_id, old, reason))
        self.promises = promises

    def starts_fit_free_devices(self, kind: DeviceKind) -> None:
        starting = [j for j in self.starting if j.kind is kind]
        self.check(_sum(starting) <= self.world.free(kind), "never over-committed", self.decision.starts)
        self.check(all(self.world.held_by(j) is None for j in starting), "a held job waits", starting)

    def quotas_hold(self, kind: DeviceKind) -> None:
        for team, quota in self.world.quotas.items():
            starting = [j for j in self.starting if j.team == team and j.kind is kind and not j.preemptible]
            turns = [j for j in self.ticketed(kind) if j.team == team]
            self.check(all(not j.preemptible for j in turns), "only regular jobs have turns", turns)
            if starting or turns:
                used = _sum([*self.running(kind, False, team), *starting, *turns])
                self.check(used <= quota.get(kind, 0), "quotas hold", (team, used, quota))

    def turns_are_kept_in_order(self, kind: DeviceKind) -> None:
        name = "whose turn came first is first"
        turns = self.ticketed(kind)
        numbers = [self.decision.tickets[j.id] for j in turns]
        self.check(len(set(numbers)) == len(numbers), name, numbers)
        old = [j for j in self.world.in_state("waiting", kind) if j.ticket is not None]
        for job in old:
            if job.team not in self.world.changed:
                kept = job.id in self.decision.starts or self.decision.tickets.get(job.id) == job.ticket
                self.check(kept, "a turn that has come is kept", job.id)
        kept_or_started = [*self.decision.tickets, *self.decision.starts]
        highest = max((j.ticket or 0 for j in old if j.id in kept_or_started), default=0)
        fresh = [j for j in turns if j.ticket is None]
        self.check(all(self.decision.tickets[j.id] > highest for j in fresh), name, numbers)
        started = [j for j in self.starting if j.kind is kind and not j.preemptible]
        for job in started:
            earlier = [t.id for t in turns if t.ticket is not None and t.ticket < (job.ticket or highest + 1)]
            self.check(not earlier, name, (job.id, earlier))
        if turns:
            free = self.world.free(kind) - _sum(j for j in self.starting if j.kind is kind)
            obtainable = free + _sum(self.running(kind, True))
            ready = turns[0].count <= free
            self.check(not ready, "a regular job whose turn has come gets free devices at once", turns[0].id)
            if turns[0].count <= obtainable:
                self.check(
                    turns[0] in self.feasible(kind), "devices are made free for the first turn", turns[0].id
                )
        # Of turns that come in one pass, each team's first goes by the time it was queued, never by priority.
        firsts: dict[str, SimulatedJob] = {}
        for job in sorted([*started, *fresh], key=lambda j: j.rank()):
            if job.ticket is None:
                firsts.setdefault(job.team, job)
        for job in firsts.values():
            if job in fresh and self.is_first_of_team(job):
                later = [
                    f.id for f in firsts.values() if f in started and (f.queued, f.id) > (job.queued, job.id)
                ]
                self.check(not later, "priority never crosses teams", (job.id, later))

    def is_first_of_team(self, job: SimulatedJob) -> bool:
        line = [
            j for j in self.world.in_state("waiting", job.kind) if j.team == job.team and not j.preemptible
        ]
        line = [j for j in line if self.world.held_by(j) is None and j.ticket is None]
        line = [j for j in line if j.count <= self.world.quotas[j.team].get(j.kind, 0)]
        return min(line, key=lambda j: j.rank()) is job

    def preemption_is_for_regular_jobs_and_needed(self, kind: DeviceKind) -> None:
        victims = [v for v in self.victims if v.kind is kind]
        self.check(len({v.id for v in victims}) == len(victims), "nobody is told twice to stop", victims)
        for victim in victims:
            fresh = victim.preemptible and victim.state == "running" and victim.stop_at is None
            self.check(fresh, "preemption chains have length 1", victim.id)
        turns = self.feasible(kind)
        for preemption in self.decision.preemptions:
            if self.world.jobs[preemption.victim].kind is kind:
                named = set(preemption.beneficiaries)
                self.check(
                    bool(named) and named <= {t.id for t in turns}, "a victim goes for a regular job", named
                )
        stopping = [j for j in self.running(kind, True) if j.stop_at is not None]
        free = self.world.free(kind) - _sum(j for j in self.starting if j.kind is kind)
        coming = free + _sum(stopping) + _sum(victims)
        self.check(coming >= _sum(turns), "no victim goes in vain", (coming, turns))
        for victim in victims:
            without = coming - victim.count
            self.check(without < _sum(turns), "no needless victim", victim.id)

    def victims_are_the_least_important(self, kind: DeviceKind) -> None:
        victims = [v for v in self.victims if v.kind is kind]
        spared = [j for j in self.running(kind, True) if j.stop_at is None and j not in victims]
        for victim in victims:
            for other in spared:
                lower = (other.priority, -other.started) < (victim.priority, -victim.started)
                self.check(
                    not (lower and other.count >= victim.count),
                    "the lowest priority goes first, then the youngest", (victim.id, other.id),
                )  # fmt: skip

    def set_aside(self, kind: DeviceKind) -> int:
        return _sum(self.feasible(kind))

    def nothing_set_aside_is_taken(self, kind: DeviceKind) -> None:
        started = [j.id for j in self.starting if j.kind is kind and j.preemptible]
        self.check(not (started and self.feasible(kind)), "preemptible jobs leave what is set aside", started)

    def free_devices_are_used(self, kind: DeviceKind) -> None:
        free = self.world.free(kind) - _sum(j for j in self.starting if j.kind is kind)
        waiting = [j for j in self.waiting(kind) if j.preemptible]
        everyone_fits = all(j.count <= free - self.set_aside(kind) for j in waiting)
        self.check(not waiting or not everyone_fits, "free devices do not idle while jobs fit", waiting)

    def least_served_team_is_first(self, kind: DeviceKind) -> None:
        started = [j for j in self.starting if j.kind is kind and j.preemptible]
        score = {
            team: self.world.served.get((team, kind), 0.0) + HOUR * _sum(self.running(kind, True, team))
            for team in self.world.quotas
        }
        for other in [j for j in self.waiting(kind) if j.preemptible]:
            after = score[other.team] + HOUR * _sum(j for j in started if j.team == other.team)
            for job in started:
                shorter = _longest(other) <= _longest(job) and other.count <= job.count
                unfair = job.team != other.team and after < score[job.team] and shorter
                self.check(not unfair, "the least-served team is first", (job.id, other.id))

    def team_order_and_backfill(self, team: str, kind: DeviceKind) -> None:
        now, decision = self.world.now, self.decision
        quota = self.world.quotas[team].get(kind, 0)
        line = [j for j in self.waiting(kind) if j.team == team and not j.preemptible and j.count <= quota]
        line = sorted((j for j in line if j.id not in decision.tickets), key=lambda j: j.rank())
        if not line:
            return
        head = line[0]
        reason = decision.reasons[head.id]
        turns = [j for j in self.ticketed(kind) if j.team == team]
        starting = [j for j in self.starting if j.team == team and j.kind is kind and not j.preemptible]
        running = self.running(kind, False, team)
        left = quota - _sum([*running, *turns, *starting])
        self.check(head.count > left, "a team's first job that fits its quota has its turn", head.id)
        self.check(reason.cause is WaitCause.QUOTA, "the head waits for its own team", reason)
        passing = [j for j in [*turns, *starting] if j.ticket is None and j.rank() > head.rank()]
        self.seen |= {"backfill"} if passing else set()
        if reason.unknown in (NoPromise.NO_LIMIT, NoPromise.OVERDUE):
            self.check(not passing, "nobody passes a head without a promise", passing)
        known = [(None if j.id in self.overdue(kind) else j.must_end_by(), j.count) for j in running]
        if reason.promised is None:
            if reason.unknown is NoPromise.NO_LIMIT:
                jobs = [self.world.jobs[i] for i in reason.waits_for]
                self.check(any(j.limit is None for j in jobs), "no limit is the reason", reason)
            return
        turn_by = reason.promised - GRACE
        releases: Releases = list(known)
        for job in [*turns, *starting]:
            start = now if job in starting else decision.reasons[job.id].promised
            end = None if job.limit is None or start is None else start + job.limit + job.grace
            releases.append((end, job.count))
        opens = _opening(left, head.count, releases)
        delayed = opens is None or opens > turn_by
        self.check(not delayed, "backfill never delays the head", (head.id, turn_by, opens, passing))
        if self.overdue(kind) or not self.guaranteed(kind):
            return
        spare = left + sum(c for end, c in known if end is not None and end <= turn_by) - head.count
        for job in line[1:]:
            short = now + GRACE + _longest(job) <= turn_by
            could = job.count <= left and (short or job.count <= spare)
            self.check(not could, "who delays nobody may pass", (job.id, head.id))

    def regular_jobs_within_quota_start_within_the_longest_grace(self, kind: DeviceKind) -> None:
        # Whoever ends in time is gone before the pass of that moment: who is still there is stuck.
        ends = [job.must_end_by() for job in self.world.in_state("running", kind)]
        stuck = any(end is not None and end <= self.world.now for end in ends)
        excused = stuck or not self.guaranteed(kind)
        if excused or self.world.changed:
            self.entitled_since = {
                i: t for i, t in self.entitled_since.items() if self.world.jobs[i].kind is not kind
            }
        if excused:
            return
        waiting = {j.id for j in self.world.in_state("waiting")}
        self.entitled_since = {i: t for i, t in self.entitled_since.items() if i in waiting}
        for team, quota in self.world.quotas.items():
            left = quota.get(kind, 0) - _sum(self.running(kind, False, team))
            line = [j for j in self.waiting(kind) if j.team == team and not j.preemptible]
            fits = True
            for job in sorted(line, key=lambda j: j.rank()):
                if job.count > quota.get(kind, 0):
                    continue
                fits = fits and job.count <= left
                if not fits:
                    self.entitled_since.pop(job.id, None)
                    continue
                left -= job.count
                since = self.entitled_since.setdefault(job.id, self.world.now)
                in_time = self.world.now < since + GRACE or self.world.now == since
                name = "a regular job within its quota starts within the longest grace"
                self.check(in_time, name, job.id)


def _sum(jobs: Iterable[SimulatedJob]) -> int:
    return sum(job.count for job in jobs)


def _longest(job: SimulatedJob) -> float:
    return float("inf") if job.limit is None else job.limit + job.grace


def _opening(left: int, count: int, releases: Releases) -> float | None:
    for end, released in sorted((end, c) for end, c in releases if end is not None):
        left += released
        if left >= count:
            return end
    return None
