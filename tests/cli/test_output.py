"""How commands show things."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator

import pytest

from trainshed.cli.output import print_json, print_json_list, print_table

pytestmark = [pytest.mark.foundation, pytest.mark.core, pytest.mark.field]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("values", [[], [{"a": "x\ny"}], [{}, {"ü": [1, {"b": []}]}, 7]])
def test_a_long_list_is_printed_as_any_other(
    values: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    print_json(values)
    whole = capsys.readouterr().out
    print_json_list(iter(values))
    assert capsys.readouterr().out == whole and json.loads(whole) == values


def table_at(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    rows = [
        ["resnet50-mindspore-20261117-224923-0b25", "succeeded", "2026-11-17 22:49:23", ""],
        ["train-20261117-224853-74f9", "failed", "2026-11-17 22:48:53", "rank 1 on node 0 exited with 1"],
    ]
    print_table(["RUN", "STATE", "SUBMITTED", "REASON"], rows)
    return capsys.readouterr().out.splitlines()


def test_a_table_that_does_not_fit_goes_on_in_a_second_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table_at(80, monkeypatch, capsys) == [
        "RUN                                      STATE      SUBMITTED",
        "    REASON",
        "resnet50-mindspore-20261117-224923-0b25  succeeded  2026-11-17 22:49:23",
        "train-20261117-224853-74f9               failed     2026-11-17 22:48:53",
        "    rank 1 on node 0 exited with 1",
    ]


def test_a_table_that_fits_has_one_line_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = table_at(120, monkeypatch, capsys)
    assert len(wide) == 3 and wide[2].endswith("2026-11-17 22:48:53  rank 1 on node 0 exited with 1")


def test_a_long_table_is_printed_as_its_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("COLUMNS", "100")
    before: list[int] = []

    def rows() -> Iterator[list[str]]:
        for number in range(1000):
            before.append(shown.tell())
            yield [f"run-{number}", "運行中", "x"]

    print_table(["RUN", "STATE", "REASON"], rows())
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()]
    assert len(lines) == 1001 and len({line.index("運") for line in lines[1:]}) == 1
    assert len({line.index("x") for line in lines[1:]}) == 1
    assert before[500] < before[501], "none waits for those after it"
