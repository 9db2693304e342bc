"""Runs that differ too much get a separate verdict; reports show words as words, whatever they hold."""

from __future__ import annotations

import re
from pathlib import Path

import made
import pytest

from trainshed.bench.folder import load_result
from trainshed.bench.history import History, compare, entry_of
from trainshed.bench.judge.check import check
from trainshed.bench.report.page import write_reports
from trainshed.bench.report.text import markdown
from trainshed.bench.result import Reason
from trainshed.cli.main import _main

pytestmark = [pytest.mark.benchmark, pytest.mark.field]


def result_of(tmp_path: Path, *steps: float, **rules: object) -> Path:
    runs = [made.MadeRun(seed=i, step=step) for i, step in enumerate(steps, 1)]
    return made.made_result(tmp_path, made.made_rules(**rules), runs)


def test_runs_that_differ_by_more_than_the_rules_allow_are_unstable(tmp_path: Path) -> None:
    folder = result_of(tmp_path, 0.1, 0.2, 0.4)
    result = load_result(folder)
    assert result.status == "unstable" and result.reasons == []
    texts = [w.message for w in result.warnings if w.code == "unstable"]
    assert len(texts) == 2 and "the rules allow 25%" in texts[0] and "± 50%" in texts[1]
    assert check(folder).findings == []


def test_the_limits_are_those_of_the_rules(tmp_path: Path) -> None:
    assert (
        load_result(result_of(tmp_path / "a", 0.1, 0.2, 0.4, max_spread=2, max_interval=3)).status == "valid"
    )
    assert load_result(result_of(tmp_path / "b", 0.1, 0.101, 0.102)).status == "valid"
    assert load_result(result_of(tmp_path / "c", 0.1, 0.101, 0.102, max_spread=0.001)).status == "unstable"


def test_an_unstable_result_called_valid_is_found(tmp_path: Path) -> None:
    folder = result_of(tmp_path, 0.1, 0.2, 0.4)
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"status": "unstable"', '"status": "valid"', 1))
    assert "number-differs" in {f.code for f in check(folder).findings}


def test_history_shows_it_and_compares_it_with_nothing(tmp_path: Path) -> None:
    stable, unstable = result_of(tmp_path / "a", 0.1, 0.101, 0.102), result_of(tmp_path / "b", 0.1, 0.2, 0.4)
    history = History(tmp_path / "bench.sqlite")
    for folder in (stable, unstable):
        history.add(load_result(folder), folder)
    assert {entry.status for entry in history.list()} == {"valid", "unstable"}
    verdict = compare(*(entry_of(load_result(f), f) for f in (stable, unstable)))
    assert verdict.verdict == "not comparable" and "is unstable" in verdict.sentence


def test_the_command_and_the_report_say_unstable_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    folder = result_of(tmp_path, 0.1, 0.2, 0.4)
    assert _main(["bench", "collect", str(folder)]) == 1
    out = capsys.readouterr().out
    assert ": unstable" in out and "unstable: the runs spread over" in out
    page = (folder / "report.html").read_text()
    assert 'class="badge unstable"' in page and "Warnings" in page and "the rules allow 25%" in page


HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) ![i](http://x/) `c` *b* a|b\n# title"


def test_no_word_becomes_markup_in_report_md(tmp_path: Path) -> None:
    result = load_result(result_of(tmp_path, 0.1, 0.101, 0.102))
    hostile = result.model_copy(
        update={
            "workload": HOSTILE,
            "framework": HOSTILE,
            "reasons": [Reason(code=HOSTILE, message=HOSTILE)],
            "warnings": [Reason(code="x", message=HOSTILE)],
        }
    )
    text = markdown(hostile)
    assert not re.search(r"<[a-zA-Z/!?]", text)
    assert not re.search(r"(?<!\\)[\[\]`*]", text)
    assert [line for line in text.splitlines() if line.startswith("# ")] == text.splitlines()[:1]


def test_no_word_becomes_markup_in_report_html(tmp_path: Path) -> None:
    folder = made.made_result(
        tmp_path, made.made_rules(workload=HOSTILE, framework=HOSTILE, sample="<b>x</b>")
    )
    page = write_reports(folder).read_text()
    assert "<script" not in page and "<b>x</b>" not in page and "&lt;script&gt;" in page


def test_the_template_engine_is_loaded_only_for_a_report() -> None:
    import subprocess
    import sys

    script = "import sys, trainshed.bench.report.page, trainshed.tester.pages; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
