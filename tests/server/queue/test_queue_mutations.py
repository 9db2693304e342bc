"""Every rule broken on purpose is caught by the cases or by the properties: what nobody would notice is not proved."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from queue_cases import CASES, check_the_door
from queue_properties import Properties
from queue_simulator import Decide, Simulation, random_scenario

from trainshed.server.queue import door, rules

pytestmark = pytest.mark.server
SEEDS = 400
"""How many simulations a broken rule may survive at most."""

MUTATIONS: dict[str, tuple[str, str]] = {
    # R0
    "what can never run blocks its team": ("min(self.quota[job.team], self.devices))", "10**9)"),
    # R1
    "a turn needs no quota": ("line[turns].count <= left:", "True:"),
    "a turn may exceed the quota by one": ("line[turns].count <= left:", "line[turns].count <= left + 1:"),
    "turns are not counted against the quota": ("        self.used[job.team] += job.count\n", ""),
    "preemptible jobs count against the quota": ("for run in self.regular:\n", "for run in runs:\n"),
    "a kept turn is not measured against a lowered quota": (
        "if job.count <= self.quota[job.team] - self.used[job.team]:",
        "if True:",
    ),
    "regular jobs are preempted": (
        "[run for run in runs if run.preemptible and run.stop_at is None]",
        "[run for run in runs if run.stop_at is None]",
    ),
    # R2
    "priority does not count": ("job.queued - _HOUR * job.priority", "job.queued"),
    "waiting does not count": ("(job.queued - _HOUR * job.priority, job.id)", "(-job.priority, job.queued, job.id)"),
    "the last one is first": ("(job.queued - _HOUR * job.priority, job.id)", "(-job.queued, job.id)"),
    "held jobs queue": ("if job.held_by is not None:", "if False:"),
    # R3
    "turns are not kept": ("if job.ticket is not None]", "if False]"),
    "tickets are not served in order": ("sorted(kept, key=lambda claim: claim[0])", "sorted(kept, key=lambda claim: -claim[0])"),
    "priority crosses teams": ("(turns, line[turns].queued,", "(turns, -line[turns].priority,"),
    "a claim passes an earlier one": ("elif room or job.count > self.free:", "elif job.count > self.free:"),
    "a claim passes one that the machine is too small for": (
        "            obtainable -= job.count\n            if obtainable < 0:",
        "            if obtainable < job.count:",
    ),
    "nobody makes room": ("self.preemptions.append(Preemption(run.id, names))", "pass"),
    "claims start on devices that are not free": ("elif room or job.count > self.free:", "elif False:"),
    "an overbooked machine promises": ("if owed > self.devices:", "if False:"),
    "outside leases are free": ("self.devices - outside - _total(runs)", "self.devices - _total(runs)"),
    "outside leases break no promise": ("if owed + outside > self.devices else None", "if owed > self.devices else None"),
    "who holds devices outside is not named": ("            names += self.outsiders\n", "            pass\n"),
    "an overdue job is believed": ("return end if end >= now else inf", "return max(end, now)"),
    "the shortest grace is promised": ("self.now + max(run.grace", "self.now + min(run.grace"),
    "devices of an overdue job are promised": ("            del self.arrivals[1:]\n", "            pass\n"),
    "tickets are not numbered": ("self.claims[-1][0] + 1 if self.claims else 1", "1"),
    "who waits for an overdue job is not told": ("if name in names or come == inf]", "if name in names]"),
    # R4
    "nobody passes": ("for job in others if at < inf else ():", "for job in ():"),
    "everybody passes": ("if in_time or job.count <= spare:\n                    self.claim", "if True:\n                    self.claim"),
    "who passes may end late": ("+ longest(job) <= at\n                if", "<= at\n                if"),
    "who passes may wait for its devices": ("self.room_by(need + job.count) + longest", "self.now + longest"),
    "spare devices are given twice": ("spare -= 0 if in_time else job.count", "pass"),
    "a head without a promise is passed": ("for job in others if at < inf else ():", "for job in others:"),
    "grace does not count with the limit": ("return inf if job.limit is None else job.limit + job.grace", "return inf if job.limit is None else job.limit"),
    "a running job's grace does not count": ("run.started + run.limit + run.grace", "run.started + run.limit"),
    "claims of the team do not count for the promise": (
        "holders.append((job.id, come + longest(job), job.count, job.limit))",
        "holders.append((job.id, self.now, job.count, job.limit))",
    ),
    "a promise forgets the grace of preemptible jobs": ("at + self.state.longest_grace", "at"),
    "spare counts what the head needs": ("return at, left - count", "return at, left"),
    # R5
    "preemptible jobs take what is set aside": ("max(0, self.free - _total(room))", "self.free"),
    "the most served team is first": ("(served[team], rank(line[0]), team, 0)", "(-served[team], rank(line[0]), team, 0)"),
    "what a team holds does not count as served": ("served[run.team] += _HOUR * run.count", "pass"),
    "what a team gets in this pass does not count as served": ("(score + _HOUR * job.count, rank", "(score, rank"),
    "past use does not count as served": ("team.served.get(self.kind, 0.0)", "0.0"),
    "nothing is set aside for a large preemptible job": ("elif first is None and job.count < hopeless:", "elif False:"),
    "a preemptible job that does not fit stops the rest": (
        "elif first is None and job.count < hopeless:",
        "else:\n                    idle = 0\n                    break\n                if False:",
    ),
    "who passes a large preemptible job may end late": ("first is None or self.now + longest(job) <= at", "True"),
    "what passes a large preemptible job is not counted": ("spare - (0 if in_time else job.count)", "spare"),
    "turns that wait are not counted before a large preemptible job": ("self.free - owed", "self.free"),
    # R6
    "the highest priority goes first": ("(-run.priority, run.started, run.id)", "(run.priority, run.started, run.id)"),
    "the oldest goes first": ("(-run.priority, run.started, run.id)", "(-run.priority, -run.started, run.id)"),
    "needless victims go": ("if run.count <= may_stay:", "if run.count < may_stay:"),
    "nobody who comes after a victim stays": ("            victims.append(run)", "            victims.append(run)\n            may_stay = 0"),
    "too few go": ("_total(candidates) - need", "_total(candidates) - need + 1"),
    "everybody goes": ("if run.count <= may_stay:", "if need <= 0:"),
    "victims go head by head": (
        "for run in choose_victims(self.movable, _total(room) - self.free - _total(self.stopping)):",
        "for run in choose_victims(self.movable, _total(room[:1]) - self.free - _total(self.stopping)):",
    ),
    "who is stopping already is not counted": ("_total(room) - self.free - _total(self.stopping)", "_total(room) - self.free"),
    "free devices are not counted": ("_total(room) - self.free - _total(self.stopping)", "_total(room) - _total(self.stopping)"),
    "somebody goes in vain": ("if obtainable < 0:\n                short.append(job)", "if obtainable < -1:\n                short.append(job)"),
    "a job that is stopping is told again": (
        "[run for run in runs if run.preemptible and run.stop_at is None]",
        "[run for run in runs if run.preemptible]",
    ),
    # Reasons
    "reasons show the free devices of before": ("WaitNumbers(kind, self.devices, self.free,", "WaitNumbers(kind, self.devices, self.devices,"),
    "jobs without a limit are not named": ("for name, _, _, limit in holders if limit is None)", "for name, _, _, limit in holders if limit)"),
    "nobody is told whose fault it is": ("(WaitCause.SHORT, (*self.outsiders, *names)", "(WaitCause.SHORT, names"),
}  # fmt: skip


DOOR_MUTATIONS: dict[str, tuple[str, str]] = {
    "no devices may be asked for": ("if job.count < 1:", "if False:"),
    "more than the machine may be asked for": ("if job.count > devices:", "if False:"),
    "all of the machine may not be asked for": ("if job.count > devices:", "if job.count >= devices:"),
    "more than the quota may be asked for": ("if job.count > quota and not job.preemptible:", "if False:"),
    "all of the quota may not be asked for": ("if job.count > quota and", "if job.count >= quota and"),
    "quotas bind preemptible jobs": ("job.count > quota and not job.preemptible", "job.count > quota"),
    "any grace may be asked for": ("if job.preemptible and job.grace > grace:", "if False:"),
    "the limit of graces binds regular jobs": ("if job.preemptible and job.grace", "if job.grace"),
    "quotas may exceed the machine": ("if quotas > devices:", "if False:"),
    "quotas may not fill the machine": ("if quotas > devices:", "if quotas >= devices:"),
}


def mutated(module: ModuleType, old: str, new: str) -> ModuleType:
    source = Path(str(module.__file__)).read_text()
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {module.__name__}"
    result = ModuleType("mutated")
    exec(compile(source.replace(old, new), f"mutated {module.__name__}", "exec"), result.__dict__)
    return result


def caught_by(decide: Decide) -> str | None:
    """The case, property or error that shows that the rules are broken."""
    for check in CASES:
        try:
            check(decide)
        except (AssertionError, KeyError) as error:  # KeyError: a job starts that should have a reason
            return f"{check.__name__}: {error!r}"
    for seed in range(SEEDS):
        try:
            Simulation(random_scenario(Random(seed)), decide, Properties).run()
        except AssertionError as error:
            return f"seed {seed}: {error!r}"
    return None


def test_the_rules_as_they_are_are_not_caught() -> None:
    """Else a mutation would be caught for nothing. The seeds are those of test_queue_properties."""
    decide = mutated(rules, "_HOUR = 3600.0", "_HOUR = 3600.00").decide
    for check in CASES:
        check(decide)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert caught_by(mutated(rules, *MUTATIONS[name]).decide) is not None


@pytest.mark.parametrize("name", DOOR_MUTATIONS)
def test_a_broken_door_is_caught(name: str) -> None:
    with pytest.raises(AssertionError):
        check_the_door(mutated(door, *DOOR_MUTATIONS[name]))
