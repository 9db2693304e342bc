"""Ranks that end at different moments: finished work is a success, and a failed rank fails the job."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.contracts, pytest.mark.real, pytest.mark.core, pytest.mark.timeout(900)]

FRAMEWORKS = ["mindspore", "pytorch", "paddle", "horovod"]
TIMES = 3
"""A crash that comes now and then shows itself in some of several runs; none is repeated."""


def leave(train: Callable, framework: str, shape: str, order: str, end: str = "well"):
    told = {"FRAMEWORK": framework, "ORDER": order, "END": end, "PYTHONFAULTHANDLER": "1"}
    return train(framework, shape=shape, launcher=framework, entry="leave.py", env=told)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("shape", "order"), [("2x2", "first"), ("1x4", "last")])
def test_a_job_whose_ranks_did_their_work_succeeds(
    framework: str, shape: str, order: str, train: Callable
) -> None:
    for _ in range(TIMES):
        run = leave(train, framework, shape, order)
        assert run.code == 0, run.said + run.text[-3000:]
        assert sorted(re.findall(r"^DONE rank (\d) of 4$", run.text, re.M)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("end", "code"), [("raise", 1), ("exit", 3)])
def test_a_rank_that_fails_at_its_end_fails_the_job(
    framework: str, end: str, code: int, train: Callable
) -> None:
    run = leave(train, framework, "2x2", "last", end)
    assert run.code == code, run.said
    failure = run.outcome["failure"]
    assert (failure["process"], failure["exit_code"]) == ("rank-1", code), failure


def test_a_world_of_one_mindspore_rank_can_call_init(train: Callable) -> None:
    run = leave(train, "mindspore", "1x1", "first")
    assert run.code == 0, run.said + run.text[-3000:]
    assert "DONE rank 0 of 1" in run.text
