"""One voice: what is wrong with a command line is said like every other error, and help looks alike everywhere."""

from __future__ import annotations

import json

import pytest

from support import Shed
from trainshed.cli.completion import collect
from trainshed.cli.main import _main

pytestmark = [pytest.mark.foundation, pytest.mark.field]
GROUPS = [entry.path for entry in collect() if entry.path]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("run", "trainshed run: job is missing", "job.yaml, the folder that holds it"),
        ("run --shap 2x2", "trainshed run: no such option: --shap", "did you mean --shape?"),
        ("ps --qqqqqq", "trainshed ps: no such option: --qqqqqq", "`trainshed ps --help`"),
        ("bench chek", "trainshed bench: no such command: 'chek'", "did you mean check?"),
        ("bench run x -n -1", "trainshed bench run: --runs: -1 is less than 0", "number of runs"),
        ("bench run x -n a", "--runs: 'a' is not a whole number", "number of runs"),
        ("wait x --timeout z", "trainshed wait: --timeout: 'z' is not a number", "seconds"),
        ("run Job.yaml -j", "trainshed run: option '-j' requires an argument", "trainshed run --help"),
        ("completion Tcsh", "'Tcsh' is not one of 'bash', 'zsh', 'fish'", "bash, zsh or fish"),
        ("cp a b C", "trainshed cp: got unexpected extra argument", "trainshed cp --help"),
        ("tester add x", "trainshed tester add: --model is missing", "resnet50"),
    ],
)
def test_usage_errors_are_one_sentence_with_a_remedy(
    capsys: pytest.CaptureFixture[str], words: str, message: str, hint: str
) -> None:
    assert _main(words.split()) == 64
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ") and message in first
    assert second.startswith("  hint: ") and hint in second
    assert not rest


def test_usage_errors_are_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["ps", "--json", "--al"]) == 64
    told = json.loads(capsys.readouterr().out)["error"]
    message = "trainshed ps: no such option: --al"
    assert told == {"code": "usage", "message": message, "hint": "did you mean --all?"}


def test_a_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["bench"]) == 0
    shown = capsys.readouterr()
    assert "Commands:" in shown.out and not shown.err


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_help_is_plain_everywhere(capsys: pytest.CaptureFixture[str], path: tuple[str, ...]) -> None:
    assert _main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: trainshed ") and not set(shown) & set("╭╰│─┌└")


@pytest.mark.real
def test_a_refusal_is_not_taken_for_the_end_of_a_rank(shed: Shed) -> None:
    job = shed.job("two", {"t.py": "raise SystemExit(2)"}, entry="t.py")
    assert shed.cli("run", job).returncode == 2
    assert shed.cli("run", job, "--set", "nonsense=1").returncode == 64
