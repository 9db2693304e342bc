"""Each case of `queue_cases`, and what is said at the door and in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from queue_cases import CASES, HOUR, NPU, check_the_door, moment, runs, waits
from queue_simulator import Decide

from trainshed.server.queue import door
from trainshed.server.queue.door import refuse, what_if
from trainshed.server.queue.model import NoPromise, QueueRefusal, WaitCause, WaitNumbers, WaitReason
from trainshed.server.queue.rules import decide
from trainshed.server.queue.sentences import describe

pytestmark = pytest.mark.server


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_case(check: Decide) -> None:
    check(decide)


def test_what_can_never_run_is_refused_with_the_number() -> None:
    check_the_door(door)
    refusal = door.refuse(moment(8, {"red": 4}), waits("job", 5))
    assert refusal is not None
    assert (
        refusal.message
        == "5 ascend devices: team red may use 4; ask for no more, or let the job be preemptible"
    )


def test_what_is_refused_at_the_door_waits_for_ever_if_it_is_queued_all_the_same() -> None:
    state = moment(8, {"red": 4}, waits("job", 5))
    assert refuse(state, state.waiting[0]) is not None
    assert decide(state).reasons["job"].cause.name == "IMPOSSIBLE"


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
    lent = runs("lent", 2, "blue", preemptible=True)
    state = moment(4, {"red": 4, "blue": 0}, job, runs("busy", 2, limit=HOUR), lent)
    assert describe(job, decide(state).reasons["job"], bool) == (
        "It needs 4 ascend devices: team red uses 2 of its quota of 4. It waits for busy. "
        "It starts by 1970-01-01 03:16:20 UTC at the latest."
    )
    small, more = replace(job, count=2), waits("more", 1, "blue", preemptible=True)
    told = decide(replace(state, waiting=(small, more))).reasons
    assert describe(small, told["job"], {"busy", "job"}.__contains__) == (
        "It needs 2 ascend devices: its turn has come, 0 are free, and preemptible jobs are making room. "
        "It waits for 1 of other teams. It starts by 1970-01-01 02:47:40 UTC at the latest."
    )
    assert describe(more, told["more"], bool) == (
        "It needs 1 ascend device: 0 of 4 are free. No time is promised: preemptible jobs are promised nothing."
    )


def test_every_cause_names_its_rule_and_has_a_sentence() -> None:
    numbers = WaitNumbers(NPU, 8, 1, 2, 4, 3)
    for cause in WaitCause:
        assert cause.rule in {"R0", "R1", "R2", "R3", "R4", "R5"}
        reason = WaitReason(cause, numbers, unknown=NoPromise.HELD)
        assert describe(waits("job", 2), reason, bool).startswith("It needs 2 ascend devices: ")


def test_the_input_is_left_as_it_was() -> None:
    state = moment(4, {"red": 2}, waits("job", 2), runs("lent", 4, "blue", preemptible=True))
    assert state.devices == {NPU: 4}
    assert decide(state) == decide(state)
