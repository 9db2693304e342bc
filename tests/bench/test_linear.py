"""A check passes once over the evidence: twice the steps and evaluations are twice the work, not four times."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import made
import pytest

from trainshed.bench import folder as folders
from trainshed.bench.judge.check import check
from trainshed.bench.measure.evidence import read_run
from trainshed.bench.measure.measure import measure_run

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening]

_opened: Counter[str] | None = None


def _count_opens(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(arguments[0], str | Path):
        _opened[str(arguments[0])] += 1


sys.addaudithook(_count_opens)


def test_each_file_is_opened_once_for_its_checksum_and_once_to_be_read(tmp_path: Path) -> None:
    global _opened
    result = made.made_result(tmp_path)
    _opened = opened = Counter()
    try:
        assert check(result).ok
    finally:
        _opened = None
    read = {name: count for name, count in opened.items() if "meter-rank" in name or "metrics" in name}
    assert len(read) == 3 * (4 + 2) and set(read.values()) == {2}


def work(tmp_path: Path, factor: int) -> int:
    """Lines of Python executed to measure a run of so many times the steps, evaluations and lines."""
    run = made.MadeRun(
        nodes=1,
        per_node=2,
        steps=500 * factor,
        epochs=10 * factor,
        accuracies=tuple(0.1 + k / 1000 for k in range(10 * factor)),
        train_samples=10_000,
        lines=5,
        target=0.1,
    )
    source = run.write(tmp_path / str(factor))
    rules = made.made_rules(nodes=1, ranks=2, dataset=None, target={"value": 0.1})
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        measured = measure_run(read_run(source), rules)
    finally:
        sys.settrace(before)
    assert measured.reasons == []
    return lines


def test_the_work_grows_as_the_evidence_does(tmp_path: Path) -> None:
    once, four = work(tmp_path, 1), work(tmp_path, 4)
    assert four < 5 * once, (once, four)


def test_a_result_of_many_runs_is_measured_one_run_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gc
    import weakref

    alive: list[weakref.ref[object]] = []
    most = 0
    real = folders.read_run

    def counted(root: Path) -> object:
        nonlocal most
        evidence = real(root)
        gc.collect()
        alive.append(weakref.ref(evidence))
        most = max(most, sum(ref() is not None for ref in alive))
        return evidence

    result = made.made_result(tmp_path)
    monkeypatch.setattr(folders, "read_run", counted)
    folders.measure_folder(result)
    assert len(alive) == 3 and most <= 2
