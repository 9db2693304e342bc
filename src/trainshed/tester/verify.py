"""The Tester's own judgement of a result: the same `check` as everywhere, and the rules of the test.

A result is somebody else's data. `examine` reads it in its own process with
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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed.bench.judge.cross.alike import Turns
from trainshed.bench.result import NOT_ATTESTED
from trainshed.errors import TrainshedError
from trainshed.files import write_atomic
from trainshed.tester.attest import SubmittedRun, attest, is_as_seen
from trainshed.tester.examine import DECLARED
from trainshed.tester.headbook import HeadBook
from trainshed.tester.inbox import report_path
from trainshed.tester.ledger import Ledger
from trainshed.tester.model import Stored, Test, normal_division

CHECK_SECONDS = 600.0
"""By the clock on the wall; of processor time a check has less, see bench.judge.limits."""
_ANSWER_BYTES = 16 << 20
_TRIES = 2
_MODE = "training"
"""What Trainshed measures; no result is of inference."""


class CheckerDied(TrainshedError):
    """The helper process fails: the Tester's trouble first, and only if it stays so the result's."""

    code = "checker-died"


HELPER = (sys.executable, "-m", "trainshed.tester.examine")


class Checker:
    """One helper process that checks results one after another; replaced when it fails or takes too long."""

    def __init__(self, seconds: float = CHECK_SECONDS, command: Sequence[str] = HELPER) -> None:
        self.seconds, self.command = seconds, command
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def check(self, folder: Path, rules: str, workload: str = "") -> dict[str, Any]:
        """{findings, summary, evidence, turns, chains, report} of a folder; a check that ends badly is a finding."""
        for _ in range(_TRIES):
            with self._lock:
                began = time.monotonic()
                answer = self._ask(json.dumps({"folder": str(folder), "rules": rules, "workload": workload}))
                if answer is not None:
                    return answer
                self._end()
            if time.monotonic() - began >= self.seconds:
                return _check_failed(f"the check did not finish within {self.seconds:.0f} s")
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
                self.command,
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


def judge(
    ledger: Ledger, book: HeadBook, checker: Checker, stored: Stored, folder: Path, last: bool = False
) -> Stored:
    """Check a result and write its verdict; with `last`, a check that dies is held against the result."""
    test = ledger.test(stored.test)
    try:
        answer = checker.check(folder, test.rules, test.workload)
    except CheckerDied as error:
        if not last:
            raise
        answer = _check_failed(error.message)
    findings = list(answer["findings"]) + _against_test(test, answer["summary"])
    turns = [Turns(int(count), int(bits, 16)) for count, bits in answer["turns"]]
    others = {other for other, _ in ledger.evidence_elsewhere(answer["evidence"], stored)}
    others |= {
        test for test, known in ledger.turns_elsewhere(stored) if any(t.is_alike(known) for t in turns)
    }
    findings += _against_heads(book, test, stored, answer)
    for other in sorted(others):
        text = f"runs of this result were already submitted for test {other}"
        findings.append({"code": "evidence-reused", "message": text})
    judged = replace(
        stored,
        state="failed" if findings else "unstable" if answer["summary"]["stated"] == "unstable" else "valid",
        findings=tuple(findings),
        summary=answer["summary"],
    )
    if judged.state != "failed" and answer.get("report"):
        write_atomic(report_path(folder), str(answer["report"]))
    ledger.judge(judged, answer["evidence"], turns)
    return judged


def _against_heads(
    book: HeadBook, test: Test, stored: Stored, answer: dict[str, Any]
) -> list[dict[str, str]]:
    """Compare what came during the runs with what was submitted; the summary says what the Tester saw."""
    summary, chains = answer["summary"], [SubmittedRun.of(item) for item in answer["chains"]]
    if not summary:
        return []
    known = {c.nonce: seen for c in chains if c.nonce and (seen := book.witnessed(test.id, c.nonce))}
    found = list(attest(chains, known.get, stored.upload, test.attested))
    for chain in chains:
        # Only the run that was seen uses its nonce up: a false one must not spoil it.
        if chain.nonce in known and chain.records and is_as_seen(chain, known[chain.nonce]):
            book.use(chain.nonce, stored.upload, chain.records[-1][0])
    is_seen = bool(chains) and all(chain.nonce in known for chain in chains) and not found
    heads = sum(len(seen.heads) for seen in known.values())
    summary["attestation"] = f"attested: {heads} heads came while it was made" if is_seen else NOT_ATTESTED
    if is_seen and (left := book.unused(test.id, stored.received)):
        text = f"{left} runs that were begun for this test before it are in no result"
        summary["warnings"].append({"code": "runs-discarded", "message": text})
    return [{"code": code, "message": text} for code, text in found]


def _check_failed(text: str) -> dict[str, Any]:
    finding = {"code": "check-failed", "message": text}
    return {"findings": [finding], "summary": {}, "evidence": [], "turns": [], "chains": []}


def _against_test(test: Test, summary: dict[str, Any]) -> list[dict[str, str]]:
    """Where the result does not match the test; nothing for a result that cannot be read."""
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
        expected, stated = getattr(test, "id" if name == "testid" else name), declared[name]
        if stated and not same_value(name, expected, stated):
            text = f"the test's {name} is {expected}, submission.json declares {stated}"
            found.append(_differs("test" if name == "testid" else name, text))
    return found


def _differs(what: str, message: str) -> dict[str, str]:
    return {"code": f"{what}-differs", "message": message}


def same_value(name: str, expected: str, stated: str) -> bool:
    """Whether a value of submission.json means what the test has under this name."""
    if name == "model":
        return same_model(expected, stated)
    if name == "division":
        return normal_division(expected) == normal_division(stated)
    return expected == stated if name == "testid" else expected.lower() == stated.lower()


def same_model(expected: str, stated: str) -> bool:
    """Whether two names mean one model: `resnet50_v1.5`, `resnet50`, `ResNet-50 v1.5`."""
    left, right = (_bare(text) for text in (expected, str(stated)))
    return bool(left) and left == right


def _bare(model: str) -> str:
    name = re.sub(r"[\s_-]*v\d[\d.]*$", "", model.lower().strip())
    return "".join(letter for letter in name if letter.isalnum())
