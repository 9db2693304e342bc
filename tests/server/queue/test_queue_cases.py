"""Each case of `queue_cases`, and what is said at the door and in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from queue_cases import CASES, HOUR, NPU, moment, runs, waits
from queue_simulator import Decide

from trainshed.server.queue.door import overbookings, refuse, what_if
from trainshed.server.queue.model import QueueRefusal, WaitReason
from trainshed.server.queue.rules import decide
from trainshed.server.queue.sentences import describe
from trainshed.spec.kinds import DeviceKind

pytestmark = pytest.mark.server


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_case(check: Decide) -> None:
    check(decide)


def test_what_can_never_run_is_refused_with_the_number() -> None:
    state = moment(8, {"red": 4})
    assert refuse(state, waits("job", 4)) is None
    assert refuse(state, waits("job", 8, preemptible=True)) is None
    for job, field, most in [
        (waits("job", 0), "count", 8),
        (waits("job", 9, preemptible=True), "count", 8),
        (waits("job", 5), "count", 4),
        (waits("job", 1, "strangers"), "count", 0),
        (replace(waits("job", 1), kind=DeviceKind.NVIDIA), "count", 0),
        (waits("job", 1, preemptible=True, grace=121.0), "grace", 120),
    ]:
        refusal = refuse(state, job)
        assert refusal is not None
        assert (refusal.field, refusal.most) == (field, most)
    refusal = refuse(state, waits("job", 5))
    assert refusal is not None
    assert (
        refusal.message
        == "5 ascend devices: team red may use 4; ask for no more, or let the job be preemptible"
    )


def test_what_is_refused_at_the_door_waits_for_ever_if_it_is_queued_all_the_same() -> None:
    state = moment(8, {"red": 4}, waits("job", 5))
    assert refuse(state, state.waiting[0]) is not None
    assert decide(state).reasons["job"].cause.name == "IMPOSSIBLE"


def test_the_admin_is_told_of_quotas_that_cannot_be_kept() -> None:
    assert overbookings(moment(8, {"red": 4, "blue": 4})) == ()
    [told] = overbookings(moment(8, {"red": 4, "blue": 5}))
    assert (told.value, told.most) == (9, 8)
    assert "the machine has 8" in told.message


def test_what_if_is_answered_by_the_same_rules() -> None:
    state = moment(8, {"red": 4}, runs("busy", 2, limit=HOUR), waits("other", 8, preemptible=True))
    assert what_if(state, waits("?", 2)) is None
    reason = what_if(state, waits("?", 4))
    assert isinstance(reason, WaitReason)
    assert reason.promised == 8_000 + HOUR + 60 + 120
    assert isinstance(what_if(state, waits("?", 5)), QueueRefusal)
    asked = replace(waits("?", 4), queued=state.now)
    assert decide(replace(state, waiting=(*state.waiting, asked))).reasons["?"] == reason


def test_a_reason_is_told_in_plain_english() -> None:
    job = waits("job", 4)
    state = moment(
        4, {"red": 4, "blue": 0}, job, runs("busy", 2, limit=HOUR), runs("lent", 2, "blue", preemptible=True)
    )
    assert describe(job, decide(state).reasons["job"]) == (
        "It needs 4 ascend devices; team red uses 2 of its quota of 4 (waits for busy). "
        "It starts by 1970-01-01 03:16:20 UTC at the latest."
    )
    short = replace(state, waiting=(replace(job, count=2), waits("more", 1, "blue", preemptible=True)))
    told = decide(short).reasons
    assert describe(job, told["job"]).startswith("Its turn has come: preemptible jobs are making room")
    assert "lent" not in describe(job, told["job"]), "a job of another team is counted, not named"
    assert describe(short.waiting[1], told["more"]) == (
        "It needs 1 ascend device; 0 of 4 are free. No time is promised: preemptible jobs are promised nothing."
    )


def test_the_input_is_left_as_it_was() -> None:
    state = moment(4, {"red": 2}, waits("job", 2), runs("lent", 4, "blue", preemptible=True))
    assert state.devices == {NPU: 4}
    assert decide(state) == decide(state)
