"""Cases with a name: streams of jobs that try to starve another one, and moments in which one rule decides. Each takes
the `decide` that it judges, so that the mutation test can hand it a broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from queue_properties import Properties
from queue_simulator import GRACE, Decide, Scenario, SimulatedJob, Simulation

from trainshed.server.queue.model import (
    NoPromise,
    OutsideLease,
    QueueState,
    RunningJob,
    TeamQuota,
    WaitCause,
    WaitingJob,
)
from trainshed.spec.kinds import DeviceKind

NPU = DeviceKind.ASCEND
MINUTE, HOUR = 60.0, 3600.0
CASES: list[Callable[[Decide], None]] = []


def case(check: Callable[[Decide], None]) -> Callable[[Decide], None]:
    CASES.append(check)
    return check


def stream(
    team: str, name: str, count: int = 1, every: float = 10 * MINUTE, hours: int = 12, **more: object
) -> list[SimulatedJob]:
    """Jobs that come one after another and overlap, so that devices never fall idle by themselves."""
    many = int(hours * HOUR / every)
    return [
        SimulatedJob(f"{name}{n:03}", team, NPU, count, n * every, 30 * MINUTE, limit=30 * MINUTE, **more)  # type: ignore[arg-type]
        for n in range(many)
    ]


def waiting_time(
    decide: Decide, devices: int, quotas: dict[str, int], jobs: list[SimulatedJob], job: SimulatedJob
) -> float:
    scenario = Scenario({NPU: devices}, {team: {NPU: quota} for team, quota in quotas.items()}, [*jobs, job])
    Simulation(scenario, decide, Properties).run()
    return job.started - job.arrives


@case
def a_stream_of_small_jobs_does_not_starve_a_large_one_of_their_team(decide: Decide) -> None:
    large = SimulatedJob("large", "red", NPU, 4, 95 * MINUTE, HOUR, limit=HOUR)
    assert waiting_time(decide, 4, {"red": 4}, stream("red", "small"), large) <= 31 * MINUTE


@case
def a_stream_of_another_team_does_not_starve_a_job_on_an_overbooked_machine(decide: Decide) -> None:
    large = SimulatedJob("large", "red", NPU, 4, 95 * MINUTE, HOUR, limit=HOUR)
    assert waiting_time(decide, 4, {"red": 4, "blue": 4}, stream("blue", "small"), large) <= 31 * MINUTE


@case
def a_stream_of_urgent_jobs_does_not_starve_a_job_of_low_priority(decide: Decide) -> None:
    urgent = stream("red", "urgent", count=2, every=15 * MINUTE, priority=102)
    assert (
        waiting_time(decide, 2, {"red": 2}, urgent, SimulatedJob("low", "red", NPU, 2, 0.0, 60.0)) <= 7 * HOUR
    )


@case
def a_stream_of_small_preemptible_jobs_does_not_starve_a_large_one(decide: Decide) -> None:
    small = stream("blue", "small", preemptible=True)
    large = SimulatedJob("large", "red", NPU, 4, 95 * MINUTE, HOUR, limit=HOUR, preemptible=True)
    assert waiting_time(decide, 4, {"red": 0, "blue": 0}, small, large) <= 31 * MINUTE


@case
def small_jobs_of_its_own_team_do_not_count_a_large_preemptible_job_as_served(decide: Decide) -> None:
    jobs = stream("blue", "small", every=30 * MINUTE, preemptible=True)
    jobs += stream("red", "red", 8, every=HOUR, preemptible=True)
    jobs += stream("green", "green", 8, every=HOUR, preemptible=True)
    large = SimulatedJob("large", "blue", NPU, 8, HOUR, HOUR, limit=HOUR, preemptible=True)
    assert waiting_time(decide, 9, {"red": 0, "blue": 0, "green": 0}, jobs, large) <= 3 * HOUR


@case
def a_stream_of_regular_jobs_waits_for_nobody_of_another_team(decide: Decide) -> None:
    flood = stream("blue", "flood", every=MINUTE, hours=2, preemptible=True, grace=GRACE)
    regular = SimulatedJob("regular", "red", NPU, 3, HOUR, HOUR)
    assert waiting_time(decide, 4, {"red": 3, "blue": 1}, flood, regular) <= GRACE


def moment(
    devices: int, quotas: dict[str, int], *jobs: WaitingJob | RunningJob, outside: int = 0
) -> QueueState:
    return QueueState(
        now=10_000.0,
        devices={NPU: devices},
        teams=tuple(TeamQuota(team, {NPU: quota}) for team, quota in quotas.items()),
        waiting=tuple(job for job in jobs if isinstance(job, WaitingJob)),
        running=tuple(job for job in jobs if isinstance(job, RunningJob)),
        outside=(OutsideLease("a run of eve", NPU, outside),) if outside else (),
        longest_grace=GRACE,
    )


def waits(job_id: str, count: int, team: str = "red", queued: float = 9_000.0, **more: object) -> WaitingJob:
    return WaitingJob(job_id, team, "ann", NPU, count, queued, **more)  # type: ignore[arg-type]


def runs(job_id: str, count: int, team: str = "red", started: float = 8_000.0, **more: object) -> RunningJob:
    return RunningJob(job_id, team, "ann", NPU, count, started, **more)  # type: ignore[arg-type]


@case
def victims_are_chosen_once_for_all_heads_together(decide: Decide) -> None:
    """Head by head, "small" would go for the first and "large" for the second, which leaves 2 devices idle."""
    state = moment(
        8, {"red": 2, "blue": 4, "free": 0},
        waits("head-1", 2, "red"), waits("head-2", 4, "blue", 9_500.0),
        runs("small", 2, "free", 9_000.0, preemptible=True), runs("large", 6, "free", preemptible=True),
    )  # fmt: skip
    decision = decide(state)
    assert [p.victim for p in decision.preemptions] == ["large"]
    assert decision.preemptions[0].beneficiaries == ("head-1", "head-2")


@case
def urgency_in_one_team_does_not_take_devices_from_another(decide: Decide) -> None:
    state = moment(
        4, {"red": 2, "blue": 2},
        waits("patient", 2, "red"), waits("urgent", 2, "blue", 9_500.0, priority=1000),
        runs("lent", 2, "blue", preemptible=True),
    )  # fmt: skip
    decision = decide(state)
    assert decision.starts == ("patient",)
    assert decision.tickets == {"urgent": 2}


@case
def a_job_that_is_held_has_no_place_to_keep(decide: Decide) -> None:
    head, held = (
        waits("head", 4, queued=9_500.0),
        waits("held", 4, queued=100.0, held_by="parent", limit=HOUR),
    )
    busy = runs("busy", 2, limit=HOUR)
    before = decide(moment(4, {"red": 4}, head, held, busy)).reasons
    released = replace(held, held_by=None, queued=10_000.0)
    after = decide(moment(4, {"red": 4}, head, released, busy)).reasons
    assert before["head"].promised == after["head"].promised == 8_000 + HOUR + 60 + GRACE
    assert before["held"].cause is WaitCause.HELD
    assert after["held"].waits_for == ("head",)


@case
def nobody_passes_a_head_that_waits_for_a_job_without_a_limit(decide: Decide) -> None:
    decision = decide(
        moment(
            4, {"red": 4}, runs("endless", 2), waits("head", 4), waits("tiny", 1, queued=9_500.0, limit=1.0)
        )
    )
    assert decision.starts == ()
    assert decision.reasons["head"].unknown is NoPromise.NO_LIMIT
    assert decision.reasons["head"].waits_for == ("endless",)


@case
def a_later_job_passes_if_it_ends_in_time_or_uses_what_the_head_does_not_need(decide: Decide) -> None:
    busy, head = runs("busy", 4, limit=HOUR), waits("head", 4)
    short = waits("short", 1, queued=9_100.0, limit=1_000.0)
    spare = waits("spare", 1, queued=9_200.0)
    late = waits("late", 1, queued=9_300.0)
    decision = decide(moment(6, {"red": 5}, busy, head, short, spare, late))
    assert decision.starts == ("short",)
    assert decide(moment(6, {"red": 5}, busy, head, spare, late)).starts == ("spare",)
    larger = waits("head", 5)
    assert decide(moment(6, {"red": 6}, busy, larger, short, spare, late)).starts == ("short", "spare")
    assert decide(moment(6, {"red": 6}, busy, larger, spare, late)).starts == ("spare",)


@case
def the_wait_for_devices_counts_for_who_passes(decide: Decide) -> None:
    """The job busy is gone by 11,660. What ends just then passes if it starts now, not if somebody must make room first."""
    busy, head = runs("busy", 3, limit=HOUR), waits("head", 4)
    passes = waits("passes", 1, queued=9_500.0, limit=1_600.0)
    assert decide(moment(4, {"red": 4}, busy, head, passes)).starts == ("passes",)
    lent = runs("lent", 1, "blue", preemptible=True, grace=60.0)
    assert decide(moment(4, {"red": 4}, busy, head, passes, lent)).preemptions == ()
    in_time = decide(moment(4, {"red": 4}, busy, head, replace(passes, limit=1_540.0), lent))
    assert [(p.victim, p.beneficiaries) for p in in_time.preemptions] == [("lent", ("passes",))]


@case
def who_passes_second_waits_for_the_devices_that_the_first_took(decide: Decide) -> None:
    busy, head = runs("busy", 2, limit=HOUR), waits("head", 4)
    one = waits("one", 1, queued=9_500.0, limit=1_600.0)
    two = waits("two", 1, queued=9_600.0, limit=1_600.0)
    assert decide(moment(4, {"red": 4}, busy, head, one, two)).starts == ("one", "two")
    lent = runs("lent", 1, "blue", preemptible=True, grace=60.0)
    decision = decide(moment(4, {"red": 4}, busy, head, one, two, lent))
    assert (decision.starts, decision.preemptions) == (("one",), ())


@case
def all_that_end_with_the_last_job_in_the_way_leave_something_over(decide: Decide) -> None:
    busy = [runs("busy-1", 2, limit=HOUR), runs("busy-2", 2, limit=HOUR)]
    later = waits("later", 2, queued=9_500.0)
    assert decide(moment(6, {"red": 6}, *busy, waits("head", 4), later)).starts == ("later",)


@case
def the_grace_of_a_job_counts_with_its_limit(decide: Decide) -> None:
    """Told to stop at its limit, it may keep its devices for its grace."""
    busy, head = runs("busy", 3, limit=HOUR, grace=0.0), waits("head", 4)
    fits = waits("fits", 1, queued=9_500.0, limit=1_500.0, grace=100.0)
    assert decide(moment(4, {"red": 4}, busy, head, fits)).starts == ("fits",)
    assert decide(moment(4, {"red": 4}, busy, head, replace(fits, grace=101.0))).starts == ()


@case
def who_holds_devices_outside_the_queue_is_named(decide: Decide) -> None:
    state = moment(4, {"red": 4}, waits("job", 4), outside=1)
    reason = decide(state).reasons["job"]
    assert (reason.cause, reason.unknown) == (WaitCause.SHORT, NoPromise.OUTSIDE)
    assert reason.waits_for == ("a run of eve",)


@case
def nobody_goes_for_a_job_that_cannot_start_even_then(decide: Decide) -> None:
    state = moment(4, {"red": 4}, waits("job", 4), runs("lent", 2, "blue", preemptible=True), outside=1)
    assert decide(state).preemptions == ()


@case
def a_job_that_should_be_gone_is_named_and_nobody_else_goes_in_its_stead(decide: Decide) -> None:
    stuck = runs("stuck", 2, "blue", preemptible=True, stop_at=9_900.0)
    other = runs("other", 2, "blue", preemptible=True)
    decision = decide(moment(4, {"red": 2}, waits("job", 2, ticket=1), stuck, other))
    assert decision.preemptions == ()
    assert decision.reasons["job"].unknown is NoPromise.OVERDUE
    assert "stuck" in decision.reasons["job"].waits_for


@case
def nothing_is_promised_while_somebody_is_overdue(decide: Decide) -> None:
    stuck = runs("stuck", 2, "blue", preemptible=True, stop_at=9_900.0)
    going = runs("going", 2, "blue", preemptible=True, stop_at=9_990.0)
    decision = decide(moment(4, {"red": 4}, waits("job", 2, ticket=1), stuck, going))
    assert decision.reasons["job"].unknown is NoPromise.OVERDUE
    late = runs("late", 1, limit=HOUR, started=5_000.0)
    decision = decide(moment(4, {"red": 4}, waits("head", 4), late, runs("busy", 3, limit=HOUR)))
    assert decision.reasons["head"].unknown is NoPromise.OVERDUE
    assert "late" in decision.reasons["head"].waits_for


@case
def a_turn_that_has_come_is_not_taken_by_a_more_urgent_job(decide: Decide) -> None:
    lent = runs("lent", 2, "blue", preemptible=True, stop_at=9_990.0)
    first, urgent = waits("first", 2, ticket=7), waits("urgent", 2, queued=9_995.0, priority=900)
    decision = decide(moment(2, {"red": 2}, first, urgent, lent))
    assert decision.tickets == {"first": 7}
    assert decision.reasons["first"].promised == 10_050.0
    assert decision.reasons["urgent"].cause is WaitCause.QUOTA


@case
def a_turn_is_lost_when_the_quota_no_longer_covers_it(decide: Decide) -> None:
    job, busy = waits("job", 2, ticket=7), runs("busy", 2)
    assert decide(moment(4, {"red": 3}, job, busy)).reasons["job"].cause is WaitCause.QUOTA
    assert decide(moment(4, {"red": 1}, job, busy)).reasons["job"].cause is WaitCause.IMPOSSIBLE
    assert decide(moment(4, {"red": 3}, job, busy)).tickets == {}


@case
def free_devices_go_to_the_team_that_was_served_least(decide: Decide) -> None:
    state = moment(
        3, {},
        *(waits(f"red-{n}", 1, "red", 9_000.0 + n, preemptible=True) for n in range(3)),
        *(waits(f"blue-{n}", 1, "blue", 9_500.0 + n, preemptible=True) for n in range(3)),
    )  # fmt: skip
    served = (TeamQuota("red", {}, {NPU: 1.5 * HOUR}), TeamQuota("blue", {}, {NPU: 0.0}))
    assert decide(replace(state, teams=served)).starts == ("blue-0", "blue-1", "red-0")


def lends(job_id: str, count: int, queued: float, team: str = "red", **more: object) -> WaitingJob:
    return waits(job_id, count, team, queued, preemptible=True, **more)


@case
def a_large_preemptible_job_is_not_delayed_by_those_that_pass_it(decide: Decide) -> None:
    """The large one has its devices by 11,660."""
    busy, large = runs("busy", 2, limit=HOUR), lends("large", 4, 9_000.0)
    in_time, late = lends("in-time", 1, 9_100.0, limit=1_600.0), lends("late", 1, 9_200.0, limit=1_601.0)
    decision = decide(moment(4, {"red": 2}, busy, large, in_time, late))
    assert decision.starts == ("in-time",)
    assert decision.reasons["late"].cause is WaitCause.SET_ASIDE
    assert decision.reasons["late"].waits_for == ("large",)
    assert decision.reasons["large"].cause is WaitCause.DEVICES
    long = [lends(f"long-{n}", 1, 9_300.0 + n) for n in range(2)]
    assert decide(moment(5, {"red": 2}, busy, large, *long)).starts == ("long-0",)


@case
def what_starts_in_this_pass_ends_by_its_limit(decide: Decide) -> None:
    """The large one waits for the one that begins, which ends by 10,660; what ends before that passes."""
    begins, large = lends("begins", 1, 9_000.0, limit=600.0), lends("large", 3, 9_100.0)
    passes, endless = lends("passes", 1, 9_200.0, limit=600.0), lends("endless", 1, 9_300.0)
    assert decide(moment(3, {}, begins, large, endless, passes)).starts == ("begins", "passes")


@case
def devices_are_set_aside_for_the_first_large_job_whose_time_is_known(decide: Decide) -> None:
    endless, busy = runs("endless", 1), runs("busy", 1, "blue", preemptible=True, limit=HOUR)
    huge, large, small = lends("huge", 4, 9_000.0), lends("large", 3, 9_100.0), lends("small", 1, 9_200.0)
    assert decide(moment(4, {"red": 1}, endless, busy, huge, small)).starts == ("small",)
    assert decide(moment(4, {"red": 1}, endless, busy, huge, large, small)).starts == ()


@case
def turns_that_wait_are_counted_before_a_large_preemptible_job(decide: Decide) -> None:
    busy, turn = runs("busy", 4, limit=HOUR), waits("turn", 2, "blue")
    large, small = lends("large", 3, 9_000.0), lends("small", 1, 9_100.0)
    decision = decide(moment(6, {"red": 4, "blue": 2}, busy, turn, large, small, outside=1))
    assert decision.reasons["turn"].cause is WaitCause.SHORT
    assert decision.starts == ()


@case
def kinds_of_devices_have_queues_of_their_own(decide: Decide) -> None:
    state = moment(2, {"red": 2}, runs("busy", 2), waits("npu", 1))
    gpu = replace(waits("gpu", 1), kind=DeviceKind.NVIDIA)
    teams = (TeamQuota("red", {NPU: 2, DeviceKind.NVIDIA: 1}),)
    state = replace(state, devices={NPU: 2, DeviceKind.NVIDIA: 1}, teams=teams, waiting=(*state.waiting, gpu))
    assert decide(state).starts == ("gpu",)


def check_the_door(door: ModuleType) -> None:
    """R0: what can never run is refused with the number, and the admin is told of quotas that cannot be kept."""
    state = moment(8, {"red": 4})
    assert door.refuse(state, waits("job", 4)) is None
    assert door.refuse(state, waits("job", 8, preemptible=True, grace=GRACE)) is None
    assert door.refuse(state, waits("job", 1, grace=GRACE + 1)) is None
    for job, field, most in [
        (waits("job", 0), "count", 8),
        (waits("job", 9, preemptible=True), "count", 8),
        (waits("job", 5), "count", 4),
        (waits("job", 1, "strangers"), "count", 0),
        (replace(waits("job", 1), kind=DeviceKind.NVIDIA), "count", 0),
        (waits("job", 1, preemptible=True, grace=GRACE + 1), "grace", GRACE),
    ]:
        refusal = door.refuse(state, job)
        assert refusal is not None
        assert (refusal.field, refusal.most) == (field, most)
    assert door.overbookings(moment(8, {"red": 4, "blue": 4})) == ()
    told = door.overbookings(moment(8, {"red": 4, "blue": 5}))
    assert [(one.field, one.value, one.most) for one in told] == [("quota", 9, 8)]
    assert "the machine has 8" in told[0].message
