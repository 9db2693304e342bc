"""From a training script to a job: launcher and environment are guessed from what it imports.

Nothing of the script is executed. Modules beside the script are looked into
too, since many scripts import their framework there.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed.errors import UsageError
from trainshed.spec.near import near_path

# First match wins: Horovod scripts import a framework as well.
_FRAMEWORKS = (
    ("horovod.tensorflow", "horovod", "horovod-tensorflow"),
    ("horovod.keras", "horovod", "horovod-tensorflow"),
    ("horovod", "horovod", "horovod"),
    ("mindspore", "mindspore", "mindspore"),
    ("paddle", "paddle", "paddle"),
    ("torch", "pytorch", "pytorch"),
    ("lightning", "pytorch", "pytorch"),
    ("pytorch_lightning", "pytorch", "pytorch"),
    ("accelerate", "pytorch", "pytorch"),
    ("deepspeed", "pytorch", "pytorch"),
    ("tensorflow", "tensorflow", "tensorflow"),
    ("keras", "tensorflow", "tensorflow"),
)
_PACKAGES = {"cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
_MOST_FILES = 200


@dataclass(frozen=True)
class Guess:
    """What a script seems to be written for; `module` is the import that says so, empty if none does."""

    module: str
    launcher: str
    environment: str | None


def guess(script: Path) -> Guess:
    """Launcher and environment of a script, by its imports and those of the modules beside it."""
    found = imports(script)
    for module, launcher, environment in _FRAMEWORKS:
        if any(name == module or name.startswith(f"{module}.") for name in found):
            return Guess(module, launcher, environment)
    return Guess("", "command", None)


def environment_of(module: str) -> str | None:
    """The environment that has a framework's module."""
    return next((environment for name, _, environment in _FRAMEWORKS if name == module), None)


def package_of(module: str) -> str:
    """The name under which a registry has a module."""
    return _PACKAGES.get(module, module.replace("_", "-"))


def imports(script: Path) -> set[str]:
    """Modules that the script and the modules beside it import, by their full names."""
    found: set[str] = set()
    seen: set[Path] = set()
    waiting = [script]
    while waiting and len(seen) < _MOST_FILES:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _imports_of(file):
            found.add(name)
            waiting += _beside(script.parent, name)
    return found


def job_of(script: Path) -> dict[str, Any]:
    """The fields of a job that starts the script once per device."""
    if not script.is_file():
        raise UsageError(
            f"{script}: no such script{near_path(script)}", "give a Python script, a job.yaml or its folder"
        )
    chosen = guess(script)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", script.stem).strip("-._")[:64] or "job"
    fields: dict[str, Any] = {"name": name, "launcher": chosen.launcher}
    if chosen.environment:
        fields["environment"] = chosen.environment
    return fields | {"code": str(script.resolve().parent), "entry": script.name}


def _imports_of(file: Path) -> set[str]:
    """None for a file that today's Python cannot parse: its own interpreter will report why."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _beside(folder: Path, module: str) -> list[Path]:
    path = folder.joinpath(*module.split("."))
    return [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
