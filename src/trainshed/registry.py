"""Members of an axis (engine, launcher, contract) by name, loaded when used.

The tables name every member of Trainshed itself. Other packages add members
with entry points of the groups `trainshed.engines`, `trainshed.launchers` and
`trainshed.contracts`. Looking a name up imports nothing, so that a mistyped
one is answered at once.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, overload

from trainshed.errors import UsageError

if TYPE_CHECKING:
    from trainshed.contracts.base import Contract
    from trainshed.engines.base import Engine
    from trainshed.launchers.base import Launcher

Axis = Literal["engine", "launcher", "contract"]

ENGINES = {
    "local": "trainshed.engines.local:ENGINE",
    "slurm": "trainshed.engines.slurm:ENGINE",
}
LAUNCHERS = {
    "command": "trainshed.launchers.command:LAUNCHER",
    "horovod": "trainshed.launchers.horovod:LAUNCHER",
    "mindspore": "trainshed.launchers.mindspore:LAUNCHER",
    "paddle": "trainshed.launchers.paddle:LAUNCHER",
    "pytorch": "trainshed.launchers.pytorch:LAUNCHER",
    "tensorflow": "trainshed.launchers.tensorflow:LAUNCHER",
}
CONTRACTS = {
    "apulis": "trainshed.contracts.apulis:CONTRACT",
    "modelarts-v1": "trainshed.contracts.modelarts_v1:CONTRACT",
    "modelarts-v2": "trainshed.contracts.modelarts_v2:CONTRACT",
    "plain": "trainshed.contracts.plain:CONTRACT",
}
_TABLES: dict[Axis, dict[str, str]] = {"engine": ENGINES, "launcher": LAUNCHERS, "contract": CONTRACTS}


def members(axis: Axis) -> tuple[str, ...]:
    """The names of all members of an axis, sorted."""
    return tuple(sorted({*_TABLES[axis], *_added(axis)}))


@overload
def load(axis: Literal["engine"], name: str) -> Engine: ...
@overload
def load(axis: Literal["launcher"], name: str) -> Launcher: ...
@overload
def load(axis: Literal["contract"], name: str) -> Contract: ...
@overload
def load(axis: Axis, name: str) -> Any: ...
def load(axis: Axis, name: str) -> Any:
    """The member itself; UsageError lists the names there are."""
    if target := _TABLES[axis].get(name):
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)
    added = _added(axis).get(name)
    if added is None:
        raise UsageError(f"no such {axis}: {name!r}", f"choose one of {', '.join(members(axis))}")
    try:
        return added.load()
    except Exception as error:  # another package's error must be reported as such
        package = added.dist.name if added.dist else added.value
        raise UsageError(
            f"{axis} {name!r} of package {package} cannot be loaded: {error}", f"repair or remove {package}"
        ) from error


@cache
def _added(axis: Axis) -> dict[str, EntryPoint]:
    """What other packages register; Trainshed's own names cannot be replaced."""
    return {
        point.name: point
        for point in entry_points(group=f"trainshed.{axis}s")
        if point.name not in _TABLES[axis]
    }
