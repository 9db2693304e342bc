"""Results that are made to stop whoever checks them: each is refused by a finding, at once and without a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import pytest
from spoils import METER, change, change_json

from trainshed.bench import manifest
from trainshed.bench.judge import limits
from trainshed.bench.judge.check import check
from trainshed.bench.judge.rules import Rules

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening]

DEEP = "[" * 200_000
HUGE = "9" * 4000
"""A whole number beyond all floats."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.made_result(tmp_path_factory.mktemp("good"))


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return spoil


def pipe(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def many_runs(folder: Path) -> None:
    for number in range(4, 300):
        (folder / f"runs/{number}").mkdir()


def deep_folders(folder: Path) -> None:
    (folder / "/".join(["x"] * 40)).mkdir(parents=True)


def odd_folders(folder: Path) -> None:
    for name in ("runs/²", "runs/1/node-²", "runs/0x1"):
        (folder / name).mkdir()
    (folder / "runs/1/node-7").write_text("a file")


def many_processes(plan: dict[str, Any]) -> None:
    plan["nodes"][0]["processes"] = [{"name": f"rank-{i}", "rank": i, "argv": ["x"]} for i in range(20_000)]


def nuls(folder: Path) -> None:
    for path in folder.glob("runs/1/node-*/rank-*.log"):
        path.write_bytes(b"\0" * 1_000_000)


HOSTILE: list[tuple[str, Callable[[Path], None], str]] = [
    ("a thousand million ranks", change_json("rules.json", lambda r: r.update(ranks=10**9)), "unreadable"),
    ("a thousand million nodes", change_json("rules.json", lambda r: r.update(nodes=10**9)), "unreadable"),
    ("a million runs in the rules", change_json("rules.json", lambda r: r.update(runs=10**6)), "unreadable"),
    ("a million runs in the session", change_json("session.json", lambda s: s.update(runs=["x"] * 10**6)), "folder-limits"),
    ("ten thousand runs in the session", change_json("session.json", lambda s: s.update(runs=["x"] * 10**4)), "unreadable"),
    ("hundreds of run folders", many_runs, "folder-limits"),
    ("folders in folders", deep_folders, "folder-limits"),
    ("a pattern that tracks back forever", change_json("rules.json", lambda r: r.update(log_patterns={"quality": "(a+)+$"})), "unreadable"),
    ("a pattern with alternatives repeated", change_json("rules.json", lambda r: r.update(log_patterns={"quality": "((?:a|aa)*)b"})), "unreadable"),
    ("a pattern of many stars", change_json("rules.json", lambda r: r.update(log_patterns={"quality": "(x)" + ".*" * 30})), "unreadable"),
    ("a pattern of many stars in few letters", change_json("rules.json", lambda r: r.update(log_patterns={"quality": "(.*?,){30}P"})), "unreadable"),
    ("a plan of twenty thousand processes", change_json("runs/1/plan.json", many_processes), "file-missing"),
    ("a pipe for rules.json", pipe("rules.json"), "file-kind"),
    ("a pipe for a meter file", pipe(METER), "file-kind"),
    ("a pipe for a log", pipe("runs/1/node-0/rank-0.log"), "file-kind"),
    ("a pipe for events", pipe("runs/1/events/end.jsonl"), "file-kind"),
    ("rules nested deeply", write("rules.json", DEEP), "unreadable"),
    ("session nested deeply", write("session.json", DEEP), "unreadable"),
    ("result nested deeply", write("result.json", DEEP), "result-unreadable"),
    ("system nested deeply", write("system.json", DEEP), "system-unreadable"),
    ("plan nested deeply", write("runs/1/plan.json", DEEP), "plan-unreadable"),
    ("job nested deeply", write("runs/1/job.yaml", DEEP), "job-unreadable"),
    ("events nested deeply", write("runs/1/events/end.jsonl", DEEP), "events-unreadable"),
    ("a meter nested deeply", write(METER, DEEP), "truncated"),
    ("samples nested deeply", write("runs/1/node-0/metrics.jsonl", DEEP), "truncated"),
    ("a mark beyond floats", replace(METER, '"mono": 10', f'"mono": {HUGE}'), "meter-record"),
    ("samples beyond floats", replace(METER, '"samples": [32', f'"samples": [{HUGE}'), "meter-record"),
    ("counts beyond words", replace(METER, '"counts": [1', f'"counts": [{HUGE}'), "meter-record"),
    ("a quality beyond floats", replace(METER, '"value": 0.8', f'"value": {HUGE}'), "not-finite"),
    ("an event beyond floats", replace("runs/1/events/end.jsonl", '"time": 1', f'"time": {HUGE}'), "events-unreadable"),
    ("a plan of a thousand million ranks", change_json("runs/1/plan.json", lambda p: p.update(size=10**9)), "shape-differs"),
    ("a number of too many digits", replace(METER, '"seq": 0', f'"seq": {"9" * 5000}'), "truncated"),
    ("a rank of a thousand million", change(METER, lambda r: r[0].update(rank=10**9, world=10**9)), "world-size"),
    ("folders of odd names", odd_folders, "file-added"),
    ("line separators in an event", replace("runs/1/events/submit.jsonl", '"me"', '"m\u2028e"'), "summary-differs"),
    ("NULs in the logs", nuls, "quality-not-in-log"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "spoil", "code"), HOSTILE, ids=[h[0] for h in HOSTILE])
def test_a_hostile_result_is_a_finding(
    what: str, spoil: Callable[[Path], None], code: str, good: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "result"
    shutil.copytree(good, folder)
    spoil(folder)
    if what != "folders of odd names":
        manifest.write(folder)
    findings = check(folder).findings
    assert code in {finding.code for finding in findings}, (what, findings)
    assert all(len(finding.message) < 2000 for finding in findings) and len(findings) < 5000


def test_a_job_full_of_aliases_is_not_expanded(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "result"
    shutil.copytree(good, folder)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40)]
    path = folder / "runs/1/job.yaml"
    path.write_text("\n".join(lines) + "\n" + path.read_text() + "parameters: *a39\n")
    manifest.write(folder)
    assert "job-unreadable" in {f.code for f in check(folder).findings}


def test_a_file_that_is_too_large_is_not_read(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "result"
    shutil.copytree(good, folder)
    with (folder / METER).open("r+b") as stream:
        stream.truncate(300 << 20)  # a hole: no disk is used
    monkeypatch.setattr(manifest, "verify", lambda _: pytest.fail("it was read"))
    assert {f.code for f in check(folder).findings} == {"folder-limits"}


def test_memory_beyond_the_limit_is_a_finding_not_a_killed_machine(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "result"
    shutil.copytree(good, folder)
    # One line of a meter that is small on disk and large in memory.
    line = {"event": "setting", "mono": 1e9, "wall": 2e9, "key": "x", "value": [[[]]] * 9_000_000, "seq": 99}
    with (folder / METER).open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    manifest.write(folder)
    script = (
        "import sys; from pathlib import Path; from trainshed.bench.judge import limits\n"
        "from trainshed.bench.judge.check import check\n"
        "limits.CHECK_BYTES = 400 << 20\n"
        "with limits.bounded(): found = check(Path(sys.argv[1])).findings\n"
        "print(*(f.code for f in found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "check-failed" in done.stdout.split()


def test_processor_time_beyond_the_limit_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECK_CPU_SECONDS", 0.05)
    with pytest.raises(limits.CheckTooLong), limits.bounded():
        while True:
            pass


@pytest.mark.parametrize(
    "pattern", [r"accuracy[=:]\s*([0-9.]+)", r"epoch \d+ .*acc(?:uracy)? ([\d.eE+-]+)", r"^\[.*\] (\d{1,9})$"]
)
def test_usual_patterns_are_allowed(pattern: str) -> None:
    assert Rules(workload="x", log_patterns={"quality": pattern}).log_patterns == {"quality": pattern}
