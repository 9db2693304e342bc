"""No member of an axis knows a member of another: their names do not appear in each other's code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from trainshed import axes

pytestmark = [pytest.mark.foundation]
AXES: tuple[axes.Axis, ...] = ("engine", "launcher", "contract")
SOURCE = Path(axes.__file__).parent


def strings_of(path: Path) -> set[str]:
    """Every string in the code that is compared, matched or looked up; docstrings and messages are no such thing."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        for part in parts:
            for item in ast.walk(part):
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    found.add(item.value)
    return found


@pytest.mark.parametrize("axis", AXES)
def test_no_axis_decides_by_the_name_of_another(axis: axes.Axis) -> None:
    others = [other for other in AXES if other != axis]
    # Two member names are also everyday words of other axes: a job's command, a plain process.
    foreign = {name for other in others for name in axes.members(other)} - {"command", "plain"}
    for path in (SOURCE / f"{axis}s").rglob("*.py"):
        if "site" in path.parts:
            continue
        assert not strings_of(path) & foreign, (
            f"{path.relative_to(SOURCE)} decides by the name of another axis' member"
        )


@pytest.mark.parametrize("axis", AXES)
def test_every_member_loads_by_its_name(axis: axes.Axis) -> None:
    assert axes.members(axis)
    for name in axes.members(axis):
        assert axes.load(axis, name) is not None
