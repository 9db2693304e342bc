"""The rules R1-R6 of the queue: what starts, who makes room, and why everybody else waits.

Unknown times are infinite here. A promise is the latest time: whoever ends early lets somebody start earlier.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from heapq import heapify, heappop, heappush
from math import inf

from trainshed.server.queue.model import (
    NoPromise,
    Preemption,
    QueueDecision,
    QueueState,
    RunningJob,
    WaitCause,
    WaitingJob,
    WaitNumbers,
    WaitReason,
)
from trainshed.spec.kinds import DeviceKind

_HOUR = 3600.0
_Lines = dict[str, list[WaitingJob]]
_Why = tuple[WaitCause, tuple[str, ...], float | None, NoPromise | None]


def decide(state: QueueState) -> QueueDecision:
    """One pass of the queue. A job needs one kind of device, so every kind has a queue of its own."""
    passes = [_KindPass(state, kind) for kind in {**state.devices, **{job.kind: 0 for job in state.waiting}}]
    return QueueDecision(
        tuple(job_id for one in passes for job_id in one.starts),
        tuple(preemption for one in passes for preemption in one.preemptions),
        {job.id: number for one in passes for number, job in one.claims},
        {job_id: reason for one in passes for job_id, reason in one.reasons.items()},
    )


def rank(job: WaitingJob) -> tuple[float, str]:
    """R2: an hour of waiting is worth one step of priority, so which of two jobs is first never changes."""
    return (job.queued - _HOUR * job.priority, job.id)


def must_end_by(run: RunningJob, now: float) -> float:
    """When its devices are free at the latest; nobody knows for a job that is overdue."""
    end = inf if run.limit is None else run.started + run.limit + run.grace
    if run.stop_at is not None:
        end = min(end, run.stop_at + run.grace)
    return end if end >= now else inf


def longest(job: WaitingJob) -> float:
    return inf if job.limit is None else job.limit + job.grace


def opening(count: int, left: int, releases: list[tuple[float, int]]) -> tuple[float, int]:
    """From when on `count` fit, and how many are left over then."""
    at = inf
    for end, released in sorted(releases):
        if end > at or end == inf:
            break
        left += released
        if left >= count:
            at = end
    return at, left - count


def choose_victims(candidates: list[RunningJob], need: int) -> list[RunningJob]:
    """R6: who need not go stays, the highest priority first, then the oldest; the others are the victims."""
    victims, may_stay = [], _total(candidates) - need
    for run in sorted(candidates, key=lambda run: (-run.priority, run.started, run.id)):
        if run.count <= may_stay:
            may_stay -= run.count
        else:
            victims.append(run)
    return victims


class _KindPass:
    """One decision about one kind of device. `claims` are waiting jobs whose turn has come, in order of tickets."""

    def __init__(self, state: QueueState, kind: DeviceKind) -> None:
        self.state, self.kind, self.now = state, kind, state.now
        runs = [run for run in state.running if run.kind is kind]
        self.regular = [run for run in runs if not run.preemptible]
        self.stopping = [run for run in runs if run.preemptible and run.stop_at is not None]
        self.movable = [run for run in runs if run.preemptible and run.stop_at is None]
        self.ends = {run.id: must_end_by(run, self.now) for run in runs}
        unlimited = {run.id for run in runs if run.limit is None and run.stop_at is None}
        self.overdue = [name for name, end in self.ends.items() if end == inf and name not in unlimited]
        self.releases = [(self.ends[run.id], run.count) for run in runs]
        self.outsiders = tuple(lease.holder for lease in state.outside if lease.kind is kind)
        outside = sum(lease.count for lease in state.outside if lease.kind is kind)
        self.devices = state.devices.get(kind, 0)
        self.free = max(0, self.devices - outside - _total(runs))
        self.quota = Counter({team.name: team.quota.get(kind, 0) for team in state.teams})
        self.used: Counter[str] = Counter()
        for run in self.regular:
            self.used[run.team] += run.count
        owed = sum(max(self.quota[team], self.used[team]) for team in {*self.quota, *self.used})
        self.broken = NoPromise.OUTSIDE if owed + outside > self.devices else None
        if owed > self.devices:
            self.broken = NoPromise.OVERBOOKED
        self.starts: list[str] = []
        self.preemptions: list[Preemption] = []
        self.claims: list[tuple[int, WaitingJob]] = []
        self.why: dict[str, _Why] = {}
        waiting = [job for job in state.waiting if job.kind is kind]
        lines, fillers = self.line_up(waiting)
        self.expect_devices()
        self.give_turns(lines)
        for line in filter(None, lines.values()):
            self.pass_the_head(line)
        self.fill(fillers, self.make_room())
        for job_id in self.starts:
            self.why.pop(job_id, None)
        shared: dict[tuple[str, _Why], WaitReason] = {}  # thousands wait for the same reason
        self.reasons: dict[str, WaitReason] = {}
        for job in waiting:
            if why := self.why.get(job.id):
                if (job.team, why) not in shared:
                    quota, used = self.quota[job.team], self.used[job.team]
                    numbers = WaitNumbers(kind, self.devices, self.free, outside, quota, used)
                    shared[job.team, why] = WaitReason(why[0], numbers, *why[1:])
                self.reasons[job.id] = shared[job.team, why]

    def line_up(self, waiting: list[WaitingJob]) -> tuple[_Lines, _Lines]:
        """The regular and the preemptible jobs of each team, first one first (R2)."""
        lines: _Lines = defaultdict(list)
        fillers: _Lines = defaultdict(list)
        for job in waiting:
            if job.held_by is not None:
                self.why[job.id] = (WaitCause.HELD, (job.held_by,), None, NoPromise.HELD)
            elif job.count > (self.devices if job.preemptible else min(self.quota[job.team], self.devices)):
                self.why[job.id] = (WaitCause.IMPOSSIBLE, (), None, NoPromise.IMPOSSIBLE)
            else:
                (fillers if job.preemptible else lines)[job.team].append(job)
        for line in [*lines.values(), *fillers.values()]:
            line.sort(key=rank)
        return lines, fillers

    def expect_devices(self) -> None:
        """How many devices come to claims by when, at the latest: free ones, then those of preemptible jobs."""
        come = self.free
        self.arrivals = [(come, self.now)]
        for run in sorted(self.stopping, key=lambda run: self.ends[run.id]):
            come += run.count
            self.arrivals.append((come, self.ends[run.id]))
        if self.movable:
            by = max(self.arrivals[-1][1], self.now + max(run.grace for run in self.movable))
            self.arrivals.append((come + _total(self.movable), by))
        if self.arrivals[-1][1] == inf:  # an overdue job: nobody knows when its devices come
            del self.arrivals[1:]

    def room_by(self, need: int) -> float:
        return next((by for come, by in self.arrivals if need <= come), inf)

    def claim(self, job: WaitingJob, ticket: int | None = None) -> None:
        """R1: its turn has come; from now on it counts against its team's quota."""
        self.claims.append((ticket or (self.claims[-1][0] + 1 if self.claims else 1), job))
        self.used[job.team] += job.count

    def give_turns(self, lines: _Lines) -> None:
        """R3: a ticket for each first job of a team that fits its quota (R1). It is kept until the job starts."""
        kept = [(job.ticket, job) for line in lines.values() for job in line if job.ticket is not None]
        for number, job in sorted(kept, key=lambda claim: claim[0]):
            if job.count <= self.quota[job.team] - self.used[job.team]:
                self.claim(job, number)
        holding = {job.id for _, job in self.claims}
        fresh: list[tuple[int, float, str, WaitingJob]] = []
        for team, line in lines.items():
            line[:] = [job for job in line if job.id not in holding]
            left, turns = self.quota[team] - self.used[team], 0
            while turns < len(line) and line[turns].count <= left:
                left -= line[turns].count
                fresh.append((turns, line[turns].queued, line[turns].id, line[turns]))
                turns += 1
            del line[:turns]
        for *_, job in sorted(fresh, key=lambda turn: turn[:3]):  # between teams by time, never by priority
            self.claim(job)

    def pass_the_head(self, line: list[WaitingJob]) -> None:
        """R4: the first job of a team waits for its own team; later ones that do not delay it get their turn."""
        head, *others = line
        holders = [
            (run.id, self.ends[run.id], run.count, run.limit) for run in self.regular if run.team == head.team
        ]
        need, come = 0, self.now
        for _, job in self.claims:
            need += job.count
            if job.team == head.team:
                come = self.room_by(need)
                holders.append((job.id, come + longest(job), job.count, job.limit))
        left = self.quota[head.team] - self.used[head.team]
        at, spare = opening(head.count, left, [(end, count) for _, end, count, _ in holders])
        names, unknown = tuple(holder[0] for holder in holders), self.broken
        if late := [name for name in self.overdue if name in names or come == inf]:
            at, unknown, names = inf, NoPromise.OVERDUE, (*names, *late)
        elif at == inf and come < inf:
            unknown, names = NoPromise.NO_LIMIT, tuple(name for name, _, _, limit in holders if limit is None)
        elif unknown:
            names += self.outsiders
        promised = None if unknown else at + self.state.longest_grace
        self.why[head.id] = (WaitCause.QUOTA, names, promised, unknown)
        behind: _Why = (WaitCause.BEHIND, (head.id,), None, NoPromise.BEHIND)
        self.why.update((job.id, behind) for job in others)
        for job in others if at < inf else ():
            if job.count <= left:
                in_time = self.room_by(need + job.count) + longest(job) <= at
                if in_time or job.count <= spare:
                    self.claim(job)
                    need, left = need + job.count, left - job.count
                    spare -= 0 if in_time else job.count

    def make_room(self) -> list[WaitingJob]:
        """R3, R6: claims start in order; for those that cannot yet, but could, preemptible jobs go. Returns those."""
        obtainable = self.free + _total(self.stopping) + _total(self.movable)
        room: list[WaitingJob] = []
        short: list[WaitingJob] = []
        for _, job in self.claims:
            obtainable -= job.count
            if obtainable < 0:
                short.append(job)
            elif room or job.count > self.free:
                room.append(job)
            else:
                self.start(job)
        self.claims = self.claims[-len(room) - len(short) :] if room or short else []
        names = tuple(job.id for job in room)
        for run in choose_victims(self.movable, _total(room) - self.free - _total(self.stopping)):
            self.preemptions.append(Preemption(run.id, names))
            self.movable.remove(run)
            self.stopping.append(run)
            self.ends[run.id] = min(self.ends[run.id], self.now + run.grace)
        self.expect_devices()
        need = 0
        for job in room:
            need += job.count
            by = self.room_by(need)
            unknown = NoPromise.OVERDUE if by == inf else None
            going = (*(run.id for run in self.stopping), *self.outsiders)
            self.why[job.id] = (WaitCause.ROOM, going, None if unknown else by, unknown)
        for job in short:
            self.why[job.id] = (WaitCause.SHORT, (*self.outsiders, *names), None, self.broken)
        return room

    def fill(self, lines: _Lines, room: list[WaitingJob]) -> None:
        """R5: preemptible jobs take what is free and not set aside: for claims, and for the first that is too big."""
        idle, owed = max(0, self.free - _total(room)), sum(job.count for _, job in self.claims)
        served = defaultdict(float, {team.name: team.served.get(self.kind, 0.0) for team in self.state.teams})
        for run in [*self.movable, *self.stopping]:
            served[run.team] += _HOUR * run.count
        heap = [(served[team], rank(line[0]), team, 0) for team, line in lines.items()]
        heapify(heap)
        first: WaitingJob | None = None
        at, spare, hopeless = inf, 0, self.devices + 1
        while heap and idle > 0:
            score, _, team, begin = heappop(heap)
            for index, job in enumerate(lines[team][begin:], begin + 1):
                if job.count <= idle:
                    in_time = first is None or self.now + longest(job) <= at
                    if in_time or job.count <= spare:
                        self.start(job)
                        idle, spare = idle - job.count, spare - (0 if in_time else job.count)
                        if index < len(lines[team]):
                            heappush(heap, (score + _HOUR * job.count, rank(lines[team][index]), team, index))
                        break
                elif first is None and job.count < hopeless:
                    at, spare = opening(job.count, self.free - owed, self.releases)
                    first, hopeless = (job, hopeless) if at < inf else (None, job.count)
        names = tuple(job.id for job in room) or ((first.id,) if first else ())
        set_aside: _Why = (WaitCause.SET_ASIDE, names, None, NoPromise.PREEMPTIBLE)
        too_few: _Why = (WaitCause.DEVICES, (), None, NoPromise.PREEMPTIBLE)
        for line in lines.values():
            self.why.update((job.id, set_aside if job.count <= self.free else too_few) for job in line)

    def start(self, job: WaitingJob) -> None:
        self.starts.append(job.id)
        self.free -= job.count
        self.releases.append((self.now + longest(job), job.count))


def _total(jobs: list[RunningJob] | list[WaitingJob]) -> int:
    return sum(job.count for job in jobs)
