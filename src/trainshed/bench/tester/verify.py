"""The Tester's own judgement of a result: the same `check` as everywhere, and the rules of the test.

A result is somebody else's data. It is checked in a process of its own with
limits on time and memory, so that no result can stop the Tester.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import selectors
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed.bench.tester.ledger import Ledger
from trainshed.bench.tester.model import Stored, Test, division_word
from trainshed.errors import TrainshedError

CHECK_SECONDS = 120.0
_MEMORY = 4 << 30
_ANSWER_BYTES = 16 << 20
_TRIES = 2


class CheckerDied(TrainshedError):
    """The helper process fails: the Tester's trouble first, and only if it stays so the result's."""

    code = "checker-died"


class Checker:
    """One helper process that checks results one after another; replaced when it fails or takes too long."""

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def check(self, folder: Path, rules: str) -> dict[str, Any]:
        """{findings, summary, evidence} of a folder; a check that ends badly is a finding."""
        for _ in range(_TRIES):
            with self._lock:
                began = time.monotonic()
                answer = self._ask(json.dumps({"folder": str(folder), "rules": rules}))
                if answer is not None:
                    return answer
                self._end()
            if time.monotonic() - began >= self.seconds:
                text = f"the check did not end within {self.seconds:.0f} s"
                return {
                    "findings": [{"code": "check-failed", "message": text}],
                    "summary": {},
                    "evidence": [],
                }
        raise CheckerDied("the process that checks results ended without an answer")

    def close(self) -> None:
        """End the helper process; the next check starts another."""
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _ask(self, question: str) -> dict[str, Any] | None:
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", "trainshed.bench.tester.verify"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        assert process.stdin and process.stdout
        try:
            process.stdin.write(question.encode() + b"\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(self.seconds):
                    return None
            line = process.stdout.readline(_ANSWER_BYTES)
            answer = json.loads(line)
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None


def judge(ledger: Ledger, checker: Checker, stored: Stored, folder: Path, last: bool = False) -> Stored:
    """Check a result and write its verdict; with `last`, a check that dies is held against the result."""
    test = ledger.test(stored.test)
    try:
        answer = checker.check(folder, test.rules)
    except CheckerDied as error:
        if not last:
            raise
        finding = {"code": "check-failed", "message": error.message}
        answer = {"findings": [finding], "summary": {}, "evidence": []}
    findings = list(answer["findings"]) + _against_test(test, answer["summary"])
    for other, _ in ledger.evidence_elsewhere(answer["evidence"], stored):
        text = f"runs of this result were already handed in for test {other}"
        findings.append({"code": "evidence-reused", "message": text})
    judged = replace(
        stored,
        state="failed" if findings else "valid",
        findings=tuple(findings),
        summary=answer["summary"],
    )
    ledger.judge(judged, answer["evidence"])
    return judged


def _against_test(test: Test, summary: dict[str, Any]) -> list[dict[str, str]]:
    """What the test asks for and the result is not."""
    found = []
    stated = str(summary.get("model") or summary.get("workload") or "")
    if (
        stated
        and not same_model(test.model, stated)
        and not same_model(test.model, summary.get("workload", ""))
    ):
        text = f"the test is for model {test.model}, the result is of {stated}"
        found.append({"code": "model-differs", "message": text})
    if summary and test.object == "single" and summary.get("nodes", 1) > 1:
        text = f"the test is for a single server, the result used {summary['nodes']} nodes"
        found.append({"code": "object-differs", "message": text})
    declared = str(summary.get("division") or "")
    if declared and division_word(declared) != test.division:
        text = f"the test is in division {test.division}, the result declares {declared}"
        found.append({"code": "division-differs", "message": text})
    return found


def same_model(asked: str, stated: str) -> bool:
    """Whether two names mean one model: `resnet50_v1.5`, `resnet50`, `ResNet-50 v1.5`."""
    left, right = (_bare(text) for text in (asked, str(stated)))
    return bool(left) and left == right


def _bare(model: str) -> str:
    name = re.sub(r"[\s_-]*v\d[\d.]*$", "", model.lower().strip())
    return "".join(letter for letter in name if letter.isalnum())


def _examine(folder: Path, rules: str) -> dict[str, Any]:
    from trainshed.bench.check import check
    from trainshed.bench.manifest import digest
    from trainshed.bench.rules import Rules

    expected = Rules.model_validate_json(rules) if rules else None
    try:
        checked = check(folder, expected)
        findings = [{"code": r.code, "message": r.message[:500]} for r in checked.findings[:200]]
        summary = _summary(folder, checked.result) if checked.result else {}
    except Exception as error:  # the input is hostile: whatever it provokes is a finding, not a crash
        text = f"the result cannot be checked: {type(error).__name__}: {str(error)[:300]}"
        return {"findings": [{"code": "unreadable", "message": text}], "summary": {}, "evidence": []}
    evidence = [digest(path) for path in sorted(folder.glob("runs/*/events.jsonl"))]
    return {"findings": findings, "summary": summary, "evidence": evidence}


def _summary(folder: Path, result: Any) -> dict[str, Any]:
    """What pages and ranking show of a result; every number as measured, or absent."""
    from trainshed.bench.result import number

    system, declared = _object(folder / "system.json"), _object(folder / "submission.json")
    return {
        "id": result.id[:200],
        "created": result.created[:40],
        "workload": result.workload[:100],
        "version": result.version[:40],
        "scale": result.scale[:40],
        "model": result.model[:100],
        "framework": result.framework[:100],
        "nodes": result.shape.nodes,
        "ranks": result.shape.ranks,
        "metric": result.score.metric,
        "score": number(result.score.value),
        "unit": getattr(result.score.value, "unit", "")[:40],
        "quality": number(result.score.quality),
        "runs": len(result.runs),
        "spread": number(result.score.spread),
        "stated": result.status,
        "system": str(system.get("system_name", ""))[:100],
        "accelerator": str(system.get("accelerator_model_name", ""))[:100],
        "emulated": _emulated(folder),
        "division": str(declared.get("division", ""))[:40],
    }


def _object(path: Path) -> dict[str, Any]:
    """A JSON object, empty when there is none: what is missing was already found by the check."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _emulated(folder: Path) -> bool:
    """Whether a run used stand-ins for the devices it was written for."""
    for path in folder.glob("runs/*/events.jsonl"):
        with path.open(encoding="utf-8", errors="replace") as stream:
            if any('"emulated"' in line and json.loads(line).get("emulated") for line in stream):
                return True
    return False


def main() -> None:
    """The helper process: one question a line, one answer a line."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = sys.stdout
    sys.stdout = sys.stderr  # nothing else may write between the answers
    for line in sys.stdin:
        question = json.loads(line)
        answer = _examine(Path(question["folder"]), question["rules"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
