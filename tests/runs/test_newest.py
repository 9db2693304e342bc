"""Summaries by their age, of any number: few are held at a time, also where nothing can be written."""

from __future__ import annotations

import random
import resource
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trainshed.runs import newest
from trainshed.runs.newest import newest_first
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import Summary

pytestmark = [pytest.mark.foundation, pytest.mark.core]


def many(count: int) -> Iterator[Summary]:
    """Runs in no order, two for each second."""
    order = list(range(count))
    random.Random(count).shuffle(order)
    outcome = Outcome.of(Failure(Cause.RANK, "rank 0 failed", last_lines=("a", "b")))
    for number in order:
        yield Summary(f"job-{number:06}", RunState.FAILED, submitted=float(number // 2), outcome=outcome)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process can grow beyond so many bytes: the same errors as of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 3000])
def test_the_newest_is_first_and_of_two_alike_the_later_name(count: int) -> None:
    found = list(newest_first(many(count)))
    assert [summary.id for summary in found] == [f"job-{number:06}" for number in reversed(range(count))]
    assert {summary.id: summary for summary in found} == {summary.id: summary for summary in many(count)}


def test_blocks_of_blocks_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "_BLOCK", 4)
    monkeypatch.setattr(newest, "_FAN", 3)
    found = [summary.id for summary in newest_first(many(1001))]
    assert found == [f"job-{number:06}" for number in reversed(range(1001))]


@pytest.mark.parametrize("size", [0, 5000, 60_000])
def test_a_full_disk_hides_no_run(size: int) -> None:
    with largest_file(size):
        found = [summary.id for summary in newest_first(many(3000))]
    assert found == [f"job-{number:06}" for number in reversed(range(3000))]


def test_no_place_for_temporary_files_hides_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self/nowhere")
    assert sum(1 for _ in newest_first(many(600))) == 600


def test_memory_does_not_grow_with_the_number_of_runs() -> None:
    assert peak(40_000) < 3 * peak(1000), "forty times the runs"


def peak(count: int) -> int:
    """The most bytes that were held at a time, without what makes the summaries."""
    tracemalloc.start()
    try:
        made = (
            Summary(f"job-{n * 7919 % count}", RunState.SUCCEEDED, submitted=float(n)) for n in range(count)
        )
        assert sum(1 for _ in newest_first(made)) == count
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
