"""Members of an axis (engine, launcher, contract), found by name and loaded when used.

A member is a module of the axis' package: `launchers/pytorch.py` is launcher
`pytorch`, `contracts/modelarts_v1.py` is contract `modelarts-v1`. Listing them
imports nothing, so that a mistyped name is answered at once.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from trainshed.errors import UsageError

Axis = Literal["engine", "launcher", "contract"]

_ATTRIBUTE = {"engine": "ENGINE", "launcher": "LAUNCHER", "contract": "CONTRACT"}


def members(axis: Axis) -> tuple[str, ...]:
    """The names of all members of an axis, sorted."""
    folder = Path(__file__).parent / f"{axis}s"
    names = []
    for path in folder.iterdir():
        if path.suffix == ".py" and path.stem not in ("__init__", "base"):
            names.append(path.stem)
        elif (path / "__init__.py").is_file():
            names.append(path.name)
    return tuple(sorted(name.replace("_", "-") for name in names if not name.startswith("_")))


def load(axis: Axis, name: str) -> Any:
    """The member itself: the object its module publishes as ENGINE, LAUNCHER or CONTRACT."""
    if name not in members(axis):
        raise UsageError(f"{axis}: no {axis} is called {name!r}", f"choose one of {', '.join(members(axis))}")
    module = import_module(f"trainshed.{axis}s.{name.replace('-', '_')}")
    return getattr(module, _ATTRIBUTE[axis])
