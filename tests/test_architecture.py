"""What keeps the source tree easy to search: members of an axis do not know other axes, a class name exists once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from trainshed import registry

pytestmark = [pytest.mark.foundation, pytest.mark.core]
AXES: tuple[registry.Axis, ...] = ("engine", "launcher", "contract")
SOURCE = Path(registry.__file__).parent


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
def test_no_axis_decides_by_the_name_of_another(axis: registry.Axis) -> None:
    others = [other for other in AXES if other != axis]
    # Two member names are also everyday words of other axes: a job's command, a plain process.
    foreign = {name for other in others for name in registry.members(other)} - {"command", "plain"}
    for path in (SOURCE / f"{axis}s").rglob("*.py"):
        if "payload" in path.parts:
            continue
        assert not strings_of(path) & foreign, (
            f"{path.relative_to(SOURCE)} decides by the name of another axis' member"
        )


@pytest.mark.parametrize("axis", AXES)
def test_every_member_loads_by_its_name(axis: registry.Axis) -> None:
    assert registry.members(axis)
    for name in registry.members(axis):
        assert registry.load(axis, name) is not None


def test_no_class_name_exists_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert len(places) > 200, "the search found hardly any class"
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_test_file_name_exists_twice() -> None:
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert not {name for name in names if names.count(name) > 1}, "pytest cannot collect both"


def test_there_is_one_kind_of_lock() -> None:
    """Two kinds on one file do not see each other: whoever took the other kind was not kept out."""
    for path in SOURCE.rglob("*.py"):
        if path.name != "files.py" and "payload" not in path.parts:
            assert not re.search(r"fcntl\.(flock|lockf|fcntl)\(", path.read_text()), path.relative_to(SOURCE)


def test_causes_of_errors_are_kept() -> None:
    # An attribute that is missing is told as Python tells it; payloads do as the packages they stand for.
    for path in SOURCE.rglob("*.py"):
        if path.name != "easydict.py" and "payload" not in path.parts:
            assert not re.search(r"^ +.* from None$", path.read_text(), re.M), path.relative_to(SOURCE)
