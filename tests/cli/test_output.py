"""How commands show things."""

from __future__ import annotations

import json

import pytest

from trainshed.cli.output import print_json, print_json_list

pytestmark = [pytest.mark.foundation, pytest.mark.core]


@pytest.mark.parametrize("values", [[], [{"a": "x\ny"}], [{}, {"ü": [1, {"b": []}]}, 7]])
def test_a_long_list_is_printed_as_any_other(
    values: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    print_json(values)
    whole = capsys.readouterr().out
    print_json_list(iter(values))
    assert capsys.readouterr().out == whole and json.loads(whole) == values
