"""The helper process that opens a result: the check, what pages show of it, and marks of its evidence.

It reads somebody else's data and may be killed at any time. It knows no test and no ledger.
"""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainshed.bench.tester.model import plain

DECLARED = ("testid", "mode", "model", "division", "scenario", "object")
"""What submission.json may say of the test it is for."""
_MEMORY = 4 << 30
_FINDINGS = 200
_SYSTEM_TEXT = 2000


def examine(folder: Path, rules: str) -> dict[str, Any]:
    """{findings, summary, evidence} of a result folder; whatever is wrong with it is a finding."""
    from trainshed.bench.check import check
    from trainshed.bench.rules import Rules

    expected = Rules.model_validate_json(rules) if rules else None
    try:
        checked = check(folder, expected)
        found = [(r.code, r.message) for r in checked.findings[:_FINDINGS]]
        found += [*_system(folder), *(item for run in _runs(folder) for item in _missing(run))]
        summary = _summary(folder, checked.result) if checked.result else {}
        evidence = [mark for run in _runs(folder) for mark in _marks(run)]
    except Exception as error:  # the input is hostile: whatever it provokes is a finding, not a crash
        text = f"the result cannot be checked: {type(error).__name__}: {error}"
        found, summary, evidence = [("unreadable", text)], {}, []
    findings = [{"code": code, "message": plain(text, 500)} for code, text in found[:_FINDINGS]]
    return {"findings": findings, "summary": summary, "evidence": evidence}


def _summary(folder: Path, result: Any) -> dict[str, Any]:
    """What pages and ranking show of a result; every number as measured, or absent."""
    from trainshed.bench.result import number

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
        "spread": number(result.score.spread),
        "stated": result.status,
        "system": plain(str(system.get("system_name", "")), 100),
        "accelerator": plain(str(system.get("accelerator_model_name", "")), 100),
        "emulated": any(_emulated(run) for run in _runs(folder)),
        "declared": {name: plain(str(declared.get(name, "")), 100).strip() for name in DECLARED},
    }


def _system(folder: Path) -> Iterator[tuple[str, str]]:
    """Words of system.json that cannot be written down or have no end."""
    for name, value in _object(folder / "system.json").items():
        if isinstance(value, str) and (len(value) > _SYSTEM_TEXT or not _encodable(value)):
            text = f"system.json: {name[:100]} is longer than {_SYSTEM_TEXT} characters or no Unicode text"
            yield "system-fields", text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _runs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("runs/*") if path.is_dir())


def _missing(run: Path) -> Iterator[tuple[str, str]]:
    """What a run must have left to be known as itself: which run it was and how it was submitted."""
    place = f"runs/{run.name}"
    if not isinstance(_object(run / "plan.json").get("run"), str):
        yield "evidence-missing", f"{place}/plan.json is missing or does not name the run"
    if not any(event.get("kind") == "submitted" for event in _lines(run / "events.jsonl")):
        yield (
            "evidence-missing",
            f"{place}/events.jsonl is missing or does not tell how the run was submitted",
        )


def _emulated(run: Path) -> bool:
    """Whether a run used stand-ins for the devices it was written for."""
    told = (_object(run / "plan.json"), *_lines(run / "events.jsonl"))
    return any(bool(item.get("emulated")) for item in told)


def _marks(run: Path) -> list[str]:
    """By these a run is recognised wherever it is handed in: what happened to it, and what its ranks metered."""
    groups = ([run / "events.jsonl"], sorted(run.rglob("meter-rank-*.jsonl")))
    marks = [_mark(line for path in group for line in _lines(path)) for group in groups]
    return [mark for mark in marks if mark]


def _mark(records: Iterable[dict[str, Any]]) -> str:
    """A hash of what records say, however they are written; nothing when there are none."""
    hashed, empty = hashlib.sha256(), True
    for record in records:
        hashed.update(json.dumps(record, sort_keys=True).encode() + b"\n")
        empty = False
    return "" if empty else hashed.hexdigest()


def _object(path: Path) -> dict[str, Any]:
    """A JSON object, empty when there is none: what is missing was already found by the check."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line; what else is in it was already found by the check."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def main() -> None:
    """One question a line, one answer a line."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # without a Tester there is nobody left to tell
    answers = sys.stdout
    sys.stdout = sys.stderr  # nothing else may write between the answers
    for line in sys.stdin:
        question = json.loads(line)
        answer = examine(Path(question["folder"]), question["rules"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
