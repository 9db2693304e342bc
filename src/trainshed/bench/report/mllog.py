"""Writes a run as an MLLOG file, and the block `train_result_info` in the rendering of ais-bench.

Both are views of a measured run; nothing is measured here. The MLLOG file
states only what the run recorded: caches are said to be cleared only if the
script said so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.evidence import RunEvidence
from trainshed.bench.measure.meter_file import MeterSession
from trainshed.bench.result import Quantity, RunResult, number

NOT_MEASURED = "not measured"


def mllog_text(evidence: RunEvidence, run: RunResult, rules: Rules, system: dict[str, Any]) -> str:
    """All lines of one run's MLLOG file, ordered by time; empty when the script had no meter."""
    ranks = [evidence.ranks[r] for r in sorted(evidence.ranks) if evidence.ranks[r].session]
    if not ranks or ranks[0].session is None:
        return ""
    lines = list(_header(ranks[0].session, run, rules, system)) + list(_events(ranks[0].session, run))
    return "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines)


def train_result_info(values: dict[str, str | int | float]) -> str:
    """The block as the original prints it: keys sorted, three spaces, a space on both sides of the colon."""
    rows = [f"   {json.dumps(key)} : {json.dumps(values[key])}" for key in sorted(values)]
    return "train_result_info: {\n" + ",\n".join(rows) + "\n}\n"


def train_result_values(
    throughput: Quantity, quality: Quantity, runs: list[RunResult]
) -> dict[str, str | int | float]:
    """The 15 keys of `train_result_info`, of the last run where a key is about one run; times in UTC."""
    run = runs[-1]
    watts = number(run.power.average)
    rate = number(throughput)
    training = [p for p in run.phases if p.name == "training"]
    spans = {
        "dataload": [p for p in run.phases if p.name == "dataload"],
        "prepare": [p for p in run.phases if p.name == "prepare"],
        "proc": training,
    }
    values: dict[str, str | int | float] = {
        "accuracy": _text(number(quality)),
        "average_power": _or_not_measured(watts),
        "efficientcy": _or_not_measured(rate / watts if rate is not None and watts else None),
        "energy_consumption": _or_not_measured(number(run.power.energy)),
        "max_power": _or_not_measured(number(run.power.maximum)),
        "resource_util_ratio": _or_not_measured(_ratio(number(run.device_use))),
        "throughput_ratio": _text(rate),
        "total_start_time": _clock(min((r.started for r in runs if r.started), default=None)),
        "total_end_time": _clock(max((r.ended for r in runs if r.ended), default=None)),
    }
    for name, phases in spans.items():
        values[f"{name}_start_time"] = _clock(min((p.start for p in phases), default=None))
        values[f"{name}_end_time"] = _clock(max((p.end for p in phases), default=None))
    return values


def _header(
    s: MeterSession, run: RunResult, rules: Rules, system: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    first = s.wall[0]
    name = rules.mllog.benchmark if rules.mllog else rules.workload
    division = rules.mllog.division if rules.mllog else "open"
    yield _line(first, "POINT_IN_TIME", "submission_benchmark", name)
    yield _line(first, "POINT_IN_TIME", "submission_division", division)
    yield _line(first, "POINT_IN_TIME", "submission_org", str(system.get("submitter", "unknown")))
    yield _line(first, "POINT_IN_TIME", "submission_platform", f"{rules.nodes}x{system.get('system_name')}")
    yield _line(first, "POINT_IN_TIME", "submission_status", "research")
    yield _line(first, "POINT_IN_TIME", "cache_clear", bool(run.settings.get("cache_clear", False)))
    yield _line(first, "INTERVAL_START", "init_start", None)
    if run.seed is not None:
        yield _line(first, "POINT_IN_TIME", "seed", run.seed)
    wanted = {"global_batch_size": None, "train_samples": None, "eval_samples": None, **run.settings}
    for key, value in sorted(wanted.items()):
        if value is not None and key != "cache_clear":
            yield _line(first, "POINT_IN_TIME", key, value)


def _events(s: MeterSession, run: RunResult) -> Iterator[dict[str, Any]]:
    start = s.first("start")
    begin = start.wall if start else s.wall[0]
    yield _line(begin, "INTERVAL_END", "init_stop", None)
    yield _line(begin, "INTERVAL_START", "run_start", None)
    for mark in s.marks:
        at = {"epoch_num": mark.fields.get("epoch", 0)}
        if mark.event in {"epoch_start", "eval_start"}:
            yield _line(mark.wall, "INTERVAL_START", mark.event, None, at)
        elif mark.event in {"epoch_stop", "eval_stop"}:
            yield _line(mark.wall, "INTERVAL_END", mark.event, None, at)
        elif mark.event == "quality" and mark.fields.get("value") is not None:
            yield _line(mark.wall, "POINT_IN_TIME", "eval_accuracy", mark.fields["value"], at)
    status = "success" if run.status == "valid" else "aborted"
    yield _line(s.wall[-1], "INTERVAL_END", "run_stop", None, {"status": status})


def _line(
    wall: float, kind: str, key: str, value: object, metadata: dict[str, object] | None = None
) -> dict[str, Any]:
    where = {"file": "trainshed/bench/mllog.py", "lineno": 1}
    return {
        "namespace": "",
        "time_ms": int(wall * 1000),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {**where, **(metadata or {})},
    }


def _text(value: float | None) -> str:
    return NOT_MEASURED if value is None else repr(value)


def _or_not_measured(value: float | None) -> str | float:
    return NOT_MEASURED if value is None else value


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _clock(wall: float | None) -> str:
    return NOT_MEASURED if wall is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(wall))
