"""One command for everything: is this result folder what it says it is?

Manifest, schema, the numbers measured again from the raw marks, the score, and
every rule. It trusts no number that it can calculate itself, writes nothing,
and names each thing it finds by a code and a sentence. The Tester runs the
same function on its own side.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.bench import manifest
from trainshed.bench.folder import (
    Measurement,
    derived_files,
    load_result,
    load_rules,
    load_session,
    measure_folder,
)
from trainshed.bench.judge.cross.runs import RunFacts
from trainshed.bench.judge.faults import ENDED_BADLY, SUCCEEDED
from trainshed.bench.judge.limits import folder_faults
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure import reading, system
from trainshed.bench.result import Reason, Result, RunResult
from trainshed.errors import TrainshedError

REQUIRED = ("rules.json", "session.json", "system.json", "result.json", "train_result_info.txt")
# Recalculating must give the same number; this only forgives another machine's last digit.
RELATIVE = 1e-9
log = logging.getLogger(__name__)
# Texts and bookkeeping that need not be measured again.
NOT_COMPARED = {"trainshed"}
MOST_FINDINGS = 1000


@dataclass
class Checked:
    """What was looked at and what was found; `result` is None when it cannot be read."""

    findings: list[Reason] = field(default_factory=list)
    result: Result | None = None
    facts: list[RunFacts] = field(default_factory=list)
    """What distinguishes each run from any other."""
    _said: dict[str, set[str]] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        return not self.findings

    def add(self, code: str, message: str) -> None:
        """Once each; of one code as many as anybody reads: a result can lack a hundred thousand files."""
        said = self._said.setdefault(code, set())
        if message not in said and len(said) < MOST_FINDINGS:
            said.add(message)
            self.findings.append(Reason(code=code, message=message))


Expected = Callable[[Rules], Rules]
"""Gives the organiser's rules for a result with its own rules; UsageError when there are none for it."""


def check(folder: Path, expected: Expected | None = None) -> Checked:
    """Everything that is wrong with a result folder; `expected` are rules of the organiser to hold it to.

    Whatever the folder provokes is a finding: it is somebody else's data.
    """
    checked = Checked()
    try:
        for reason in folder_faults(folder):
            checked.add(reason.code, reason.message)
        if checked.ok:  # what is beyond the limits is not read
            _check_folder(folder, expected, checked)
    except (
        MemoryError,
        RecursionError,
        ValueError,
        ArithmeticError,
        LookupError,
        TypeError,
        OSError,
    ) as error:
        log.debug("check of %s", folder, exc_info=True)
        checked.add("check-failed", f"the result cannot be checked: {type(error).__name__}: {error!s:.200}")
    except TrainshedError as error:
        checked.add(error.code, error.message)
    return checked


def _check_folder(folder: Path, expected: Expected | None, checked: Checked) -> None:
    for reason in manifest.verify(folder):
        checked.add(reason.code, reason.message)
    for name in REQUIRED:
        if not (folder / name).is_file():
            checked.add("file-missing", f"{name} is missing")
    _check_schema(folder, checked)
    try:
        rules = load_rules(folder)
        load_session(folder)
    except TrainshedError as error:
        checked.add("unreadable", error.message)
        return
    _check_system(folder, rules, checked)
    if expected is not None:
        try:
            required = expected(rules)
        except TrainshedError as error:
            checked.add("rules-differ", error.message)
            return
        _check_rules(rules, required, checked)
        # The organiser's rules count, not those of the result: its patterns are not used either.
        rules = required
    measured = measure_folder(folder, rules)
    again, checked.facts = measured.result, measured.facts
    for reason in again.reasons:
        checked.add(reason.code, reason.message)
    for run in again.runs:
        if run.index not in again.score.runs_not_converged:  # one may miss the target; more are a reason
            for reason in run.reasons:
                checked.add(reason.code, f"run {run.index}: {reason.message}")
        _check_run(run, measured, checked)
    try:
        checked.result = load_result(folder)
    except TrainshedError as error:
        checked.add("unreadable", error.message)
        return
    same = _compare(checked.result, again, checked)
    _check_derived(folder, checked.result if same else again, measured, checked)


def _check_run(run: RunResult, measured: Measurement, checked: Checked) -> None:
    """Without its events, its plan, its job and its logs nothing proves that a run took place."""
    for name in measured.missing[run.index]:
        checked.add("file-missing", f"{run.folder}/{name} is missing")
    if measured.states[run.index] not in {SUCCEEDED, *ENDED_BADLY}:
        checked.add("run-failed", f"run {run.index}: no event says that the run succeeded")


def _check_schema(folder: Path, checked: Checked) -> None:
    """NaN and friends are caught here, before a lenient reader lets them pass."""
    path = folder / "result.json"
    if not path.is_file():
        return

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        json.loads(path.read_text("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        checked.add("result-unreadable", f"result.json is not valid JSON: {error}")


def _check_system(folder: Path, rules: Rules, checked: Checked) -> None:
    path = folder / "system.json"
    if not path.is_file():
        return
    try:
        described = reading.read_object(path)
    except ValueError as error:
        checked.add("system-unreadable", f"system.json cannot be read: {error}")
        return
    missing = [f for f in system.FIELDS if not isinstance(described.get(f), str)]
    if missing:
        checked.add("system-fields", "system.json lacks " + ", ".join(missing))
    elif described["number_of_nodes"] != str(rules.nodes):
        text = (
            f"system.json describes {described['number_of_nodes']:.20} nodes, the rules ask for {rules.nodes}"
        )
        checked.add("system-differs", text)


def _check_rules(rules: Rules, expected: Rules, checked: Checked) -> None:
    mine, theirs = rules.model_dump(), expected.model_dump()
    for name in mine:
        if mine[name] != theirs[name]:
            text = f"the result was made with different rules: {name} is {mine[name]!r}, expected is {theirs[name]!r}"
            checked.add("rules-differ", text)


def _compare(stated: Result, again: Result, checked: Checked) -> bool:
    """Compare every value of the stated result with the one measured now; whether all are the same."""
    left, right = stated.model_dump(by_alias=True), again.model_dump(by_alias=True)
    found = differences(left, right)
    for where, a, b in found:
        text = f"result.json says {where} = {_short(a)}, the evidence says {_short(b)}"
        checked.add("number-differs", text)
    return not found


def _check_derived(folder: Path, result: Result, measured: Measurement, checked: Checked) -> None:
    """Files that only show the result; `result` is the stated one where it holds, to its last digit."""
    for name, text in derived_files(result, measured.mllog).items():
        path = folder / name
        if not path.is_file():
            checked.add("file-missing", f"{name} is missing")
        elif path.read_text("utf-8", errors="replace") != text:
            checked.add("derived-differs", f"{name} differs from the evidence")


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
