"""The helper process that opens a result: the check, what pages show of it, and marks of its evidence.

It reads somebody else's data and may be killed at any time. It knows no test and no ledger.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainshed.errors import UsageError
from trainshed.tester.model import plain

if TYPE_CHECKING:
    from trainshed.bench.judge.check import Checked, Expected
    from trainshed.bench.judge.cross.alike import Turns
    from trainshed.bench.judge.cross.runs import RunFacts
    from trainshed.bench.result import Result

DECLARED = ("testid", "mode", "model", "division", "scenario", "object")
"""What submission.json may say of the test it is for."""
_FINDINGS = 200
_WARNINGS = 50
_RUNS = 100
_REPORT_LETTERS = 4 << 20
_SYSTEM_TEXT = 2000
_TURNS = 4096
"""Of the lowest rank of each run: enough to know it again."""
_RECORDS = 100_000
"""Of all chains of a result: what is beyond counts as not submitted."""


def examine(folder: Path, rules: str, workload: str = "") -> dict[str, Any]:
    """{findings, summary, evidence, turns, chains, report} of a result folder; whatever is wrong is a finding.

    It is held to the rules of the organiser, or to those of the organiser's copy of its workload.
    """
    from trainshed.bench.judge.check import check

    try:
        checked = check(folder, _expected(rules, workload))
        found = [(r.code, r.message) for r in checked.findings[:_FINDINGS]]
        found += _system(folder)
        summary = _summary(folder, checked) if checked.result else {}
        evidence = [identity for run in checked.facts for identity in run.identities]
        turns = [_turns(run.turns) for run in checked.facts]
        chains = list(_chains(checked.facts))
    except Exception as error:  # the input is hostile: whatever it provokes is a finding, not a crash
        text = f"the result cannot be checked: {type(error).__name__}: {error}"
        found, summary, evidence, turns, chains = [("check-failed", text)], {}, [], [], []
    findings = [{"code": code, "message": plain(text, 500)} for code, text in found[:_FINDINGS]]
    report = _report(folder) if summary and not findings else ""
    return {
        "findings": findings, "summary": summary, "evidence": evidence, "turns": turns, "chains": chains,
        "report": report,
    }  # fmt: skip


def _report(folder: Path) -> str:
    """The report, made again from the evidence; empty where that fails, as a verdict does not hang on it."""
    from trainshed.bench.folder import load_result, load_rules
    from trainshed.bench.report.page import html

    try:
        text = html(folder, load_result(folder), load_rules(folder), base=None)
        text.encode()
    except Exception:  # the input is hostile, and the time it may take may end here
        return ""
    return text if len(text) <= _REPORT_LETTERS else ""


def _runs(result: Result) -> list[dict[str, Any]]:
    """What pages show of each run; every number as measured, or absent."""
    from trainshed.bench.result import number

    return [
        {
            "index": run.index,
            "status": run.status,
            "seed": run.seed,
            "throughput": number(run.throughput),
            "quality": number(run.quality),
            "time_to_target": number(run.time_to_target),
            "step_time_median": number(run.step_time_median),
            "why": plain("; ".join(reason.message for reason in run.reasons[:3]), 300),
        }
        for run in result.runs[:_RUNS]
    ]


def _expected(rules: str, workload: str) -> Expected:
    from trainshed.bench.judge.rules import Rules
    from trainshed.bench.run.workload import Workload, organiser_rules

    def required(brought: Rules) -> Rules:
        if rules:
            return Rules.model_validate_json(rules)
        if workload:
            return organiser_rules(Workload.model_validate_json(workload), brought)
        raise UsageError("the test names neither rules nor a workload", "register it again with one of them")

    return required


def _chains(facts: Sequence[RunFacts]) -> Iterator[dict[str, Any]]:
    """Of each run its nonce, and the hash and time of each record of its chain."""
    left = _RECORDS
    for run in facts:
        chain = run.chain
        records = chain.records[:left] if chain else ()
        left -= len(records)
        yield {
            "run": run.index,
            "nonce": chain.nonce if chain else "",
            "records": records,
            "submitted": chain.submitted if chain else None,
            "finished": chain.finished if chain else None,
        }


def _turns(ranks: dict[int, Turns]) -> list[int | str]:
    """[count, bits in hexadecimal] of the lowest rank."""
    if not ranks:
        return [0, "0"]
    turns = ranks[min(ranks)]
    count = min(turns.count, _TURNS)
    return [count, f"{turns.bits & ((1 << count) - 1):x}"]


def _summary(folder: Path, checked: Checked) -> dict[str, Any]:
    """What pages and ranking show of a result; every number as measured, or absent."""
    from trainshed.bench.result import number

    result = checked.result
    assert result is not None
    system, declared = _object(folder / "system.json"), _object(folder / "submission.json")
    return {
        "id": plain(result.id, 200),
        "created": plain(result.created, 40),
        "workload": plain(result.workload, 100),
        "version": plain(result.version, 40),
        "scale": plain(result.scale, 40),
        "model": plain(result.model, 100),
        "framework": plain(result.framework, 100),
        "nodes": result.shape.nodes,
        "ranks": result.shape.ranks,
        "metric": result.score.metric,
        "score": number(result.score.value),
        "unit": plain(getattr(result.score.value, "unit", ""), 40),
        "quality": number(result.score.quality),
        "runs": len(result.runs),
        "runs_of": _runs(result),
        "spread": number(result.score.spread),
        "confidence_low": number(result.score.confidence_low),
        "confidence_high": number(result.score.confidence_high),
        "warnings": [
            {"code": plain(w.code, 60), "message": plain(w.message, 300)} for w in result.warnings[:_WARNINGS]
        ],
        "stated": result.status,
        "system": plain(str(system.get("system_name", "")), 100),
        "accelerator": plain(str(system.get("accelerator_model_name", "")), 100),
        "emulated": any(run.emulated for run in checked.facts),
        "declared": {name: plain(str(declared.get(name, "")), 100).strip() for name in DECLARED},
    }


def _system(folder: Path) -> Iterator[tuple[str, str]]:
    """Texts of system.json that are not valid or too long."""
    for name, value in _object(folder / "system.json").items():
        if isinstance(value, str) and (len(value) > _SYSTEM_TEXT or not _encodable(value)):
            text = f"system.json: {name[:100]} is longer than {_SYSTEM_TEXT} characters or not valid Unicode"
            yield "system-fields", text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(path: Path) -> dict[str, Any]:
    """A JSON object, empty when there is none: what is missing was already found by the check."""
    from trainshed.bench.measure import reading

    try:
        return reading.read_object(path, 1 << 20)
    except ValueError:
        return {}


def main() -> None:
    """One question a line, one answer a line."""
    from trainshed.bench.judge.limits import CheckTooLong, bounded

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # without a Tester no one reads the answer
    answers = sys.stdout
    sys.stdout = sys.stderr  # nothing else may write between the answers
    for line in sys.stdin:
        question = json.loads(line)
        try:
            with bounded():
                answer = examine(Path(question["folder"]), question["rules"], question["workload"])
        except CheckTooLong as error:
            finding = {"code": error.code, "message": error.message}
            answer = {"findings": [finding], "summary": {}, "evidence": [], "turns": [], "chains": []}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
