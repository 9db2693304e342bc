"""The Tester's own judgement of a result: the same `check` as everywhere, and the rules of the test.

A result is somebody else's data. `examine` reads it in a process of its own with
limits on time and memory, so that no result can stop the Tester.
"""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed.bench.tester.examine import DECLARED
from trainshed.bench.tester.ledger import Ledger
from trainshed.bench.tester.model import Stored, Test, division_word
from trainshed.errors import TrainshedError

CHECK_SECONDS = 120.0
_ANSWER_BYTES = 16 << 20
_TRIES = 2
_MODE = "training"
"""What Trainshed measures; no result is of inference."""


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
                [sys.executable, "-m", "trainshed.bench.tester.examine"],
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
    """What the test asks for and the result is not; of a result that cannot be read nothing is said."""
    if not summary:
        return []
    found = []
    if not any(same_model(test.model, summary[name]) for name in ("model", "workload")):
        stated = summary["model"] or summary["workload"]
        found.append(_differs("model", f"the test is for model {test.model}, the result is of {stated}"))
    if test.mode != _MODE:
        found.append(_differs("mode", f"the test is for {test.mode}, the result was measured in {_MODE}"))
    if (summary["nodes"] > 1) != (test.object == "cluster"):
        text = f"the test is for object {test.object}, the result used {summary['nodes']} nodes"
        found.append(_differs("object", text))
    return found + _against_declared(test, summary["declared"])


def _against_declared(test: Test, declared: dict[str, str]) -> list[dict[str, str]]:
    """What submission.json says of the test and is not so; what it does not say is not held against it."""
    found = []
    for name in DECLARED:
        asked, stated = getattr(test, "id" if name == "testid" else name), declared[name]
        if stated and not same_word(name, asked, stated):
            text = f"the test's {name} is {asked}, submission.json declares {stated}"
            found.append(_differs("test" if name == "testid" else name, text))
    return found


def _differs(what: str, message: str) -> dict[str, str]:
    return {"code": f"{what}-differs", "message": message}


def same_word(name: str, asked: str, stated: str) -> bool:
    """Whether a word of submission.json means what the test has under this name."""
    if name == "model":
        return same_model(asked, stated)
    if name == "division":
        return division_word(asked) == division_word(stated)
    return asked == stated if name == "testid" else asked.lower() == stated.lower()


def same_model(asked: str, stated: str) -> bool:
    """Whether two names mean one model: `resnet50_v1.5`, `resnet50`, `ResNet-50 v1.5`."""
    left, right = (_bare(text) for text in (asked, str(stated)))
    return bool(left) and left == right


def _bare(model: str) -> str:
    name = re.sub(r"[\s_-]*v\d[\d.]*$", "", model.lower().strip())
    return "".join(letter for letter in name if letter.isalnum())
