"""One command for everything: is this result folder what it says it is?

Manifest, schema, the numbers measured again from the raw marks, the score, and
every rule. It trusts no number that it can calculate itself, writes nothing,
and names each thing it finds by a code and a sentence. The Tester runs the
same function on its own side.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.bench import manifest, system
from trainshed.bench.evidence import read_state
from trainshed.bench.faults import ENDED_BADLY, SUCCEEDED
from trainshed.bench.folder import derived_files, load_result, load_rules, load_session, measure_folder
from trainshed.bench.result import Reason, Result, RunResult
from trainshed.bench.rules import Rules
from trainshed.errors import TrainshedError

REQUIRED = ("rules.json", "session.json", "system.json", "result.json", "train_result_info.txt")
REQUIRED_OF_RUN = ("plan.json", "events.jsonl")
# Recalculating must give the same number; this only forgives another machine's last digit.
RELATIVE = 1e-9
# Words and bookkeeping that need not be measured again.
NOT_COMPARED = {"trainshed"}


@dataclass
class Checked:
    """What was looked at and what was found; `result` is None when it cannot be read."""

    findings: list[Reason] = field(default_factory=list)
    result: Result | None = None

    @property
    def ok(self) -> bool:
        return not self.findings

    def add(self, code: str, message: str) -> None:
        reason = Reason(code=code, message=message)
        if reason not in self.findings:
            self.findings.append(reason)


def check(folder: Path, expected: Rules | None = None) -> Checked:
    """Everything that is wrong with a result folder; `expected` are rules of the organiser to hold it to."""
    checked = Checked()
    for reason in manifest.verify(folder):
        checked.add(reason.code, reason.message)
    for name in REQUIRED:
        if not (folder / name).is_file():
            checked.add("file-missing", f"{name} is missing")
    _check_schema(folder, checked)
    _check_system(folder, checked)
    try:
        rules = load_rules(folder)
        load_session(folder)
    except TrainshedError as error:
        checked.add("unreadable", error.message)
        return checked
    if expected is not None:
        _check_rules(rules, expected, checked)
    again = measure_folder(folder)
    for reason in again.reasons:
        checked.add(reason.code, reason.message)
    for run in again.runs:
        if run.index not in again.score.runs_not_converged:  # one may miss the target; more are a reason
            for reason in run.reasons:
                checked.add(reason.code, f"run {run.index}: {reason.message}")
        _check_run(folder, run, checked)
    try:
        checked.result = load_result(folder)
    except TrainshedError as error:
        checked.add("unreadable", error.message)
        return checked
    same = _compare(checked.result, again, checked)
    _check_derived(folder, checked.result if same else again, checked)
    return checked


def _check_run(folder: Path, run: RunResult, checked: Checked) -> None:
    """Without its events and its plan nothing tells that a run is one."""
    for name in REQUIRED_OF_RUN:
        if not (folder / run.folder / name).is_file():
            checked.add("file-missing", f"{run.folder}/{name} is missing")
    if read_state(folder / run.folder) not in {SUCCEEDED, *ENDED_BADLY}:
        checked.add("run-failed", f"run {run.index}: no event says that the run succeeded")


def _check_schema(folder: Path, checked: Checked) -> None:
    """NaN and friends are caught here, before a lenient reader lets them pass."""
    path = folder / "result.json"
    if not path.is_file():
        return

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    try:
        json.loads(path.read_text("utf-8"), parse_constant=refuse)
    except (ValueError, UnicodeDecodeError) as error:
        checked.add("result-unreadable", f"result.json is not valid JSON: {error}")


def _check_system(folder: Path, checked: Checked) -> None:
    path = folder / "system.json"
    if not path.is_file():
        return
    try:
        described = json.loads(path.read_text("utf-8"))
        missing = [f for f in system.FIELDS if not isinstance(described.get(f), str)]
    except (ValueError, AttributeError) as error:
        checked.add("system-unreadable", f"system.json cannot be read: {error}")
        return
    if missing:
        checked.add("system-fields", "system.json lacks " + ", ".join(missing))


def _check_rules(rules: Rules, expected: Rules, checked: Checked) -> None:
    mine, theirs = rules.model_dump(), expected.model_dump()
    for name in mine:
        if mine[name] != theirs[name]:
            text = (
                f"the result was made by other rules: {name} is {mine[name]!r}, asked for is {theirs[name]!r}"
            )
            checked.add("rules-differ", text)


def _compare(stated: Result, again: Result, checked: Checked) -> bool:
    """Every number and word of the stated result against the one measured now; whether all are the same."""
    left, right = stated.model_dump(by_alias=True), again.model_dump(by_alias=True)
    found = differences(left, right)
    for where, a, b in found:
        text = f"result.json says {where} = {_short(a)}, the evidence says {_short(b)}"
        checked.add("number-differs", text)
    return not found


def _check_derived(folder: Path, result: Result, checked: Checked) -> None:
    """Files that only show the result; `result` is the stated one where it holds, to its last digit."""
    try:
        derived = derived_files(folder, result)
    except (OSError, ValueError):
        return  # system.json is missing or broken, which was already found
    for name, text in derived.items():
        path = folder / name
        if not path.is_file():
            checked.add("file-missing", f"{name} is missing")
        elif path.read_text("utf-8", errors="replace") != text:
            checked.add("derived-differs", f"{name} does not say what the evidence says")


def differences(a: Any, b: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """The places where two results differ, numbers within the last digits being equal."""
    if where in NOT_COMPARED:
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted(set(a) | set(b))
        return [d for k in keys for d in differences(a.get(k), b.get(k), f"{where}.{k}" if where else str(k))]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [
            d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{where}[{i}]")
        ]
    numbers = isinstance(a, int | float) and isinstance(b, int | float) and not isinstance(a, bool)
    if numbers and math.isclose(a, b, rel_tol=RELATIVE, abs_tol=1e-12):
        return []
    return [] if a == b else [(where, a, b)]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"
