"""Where environments are, which are whole, and what is in them.

An environment counts as made only when its marker file, written last, is
there. Nothing here installs anything or starts a process.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainshed.environments.lockfile import normal_name
from trainshed.environments.locks import held
from trainshed.environments.recipes import framework_names, recipe_for
from trainshed.errors import MissingEnvironmentError, NotFoundError
from trainshed.home import trainshed_home

MARKER = ".trainshed-env.json"
LOCK_SECONDS = 3600.0

# A foreign virtual environment is recognised by what is installed in it.
_FRAMEWORK_PACKAGES = (
    ("horovod", "horovod"),
    ("mindspore", "mindspore"),
    ("paddlepaddle", "paddle"),
    ("paddlepaddle-gpu", "paddle"),
    ("torch", "pytorch"),
    ("tensorflow", "tensorflow"),
    ("tensorflow-cpu", "tensorflow"),
)


@dataclass(frozen=True)
class Environment:
    name: str
    prefix: Path
    python: Path
    framework: str
    """Empty where no known framework is installed."""
    versions: Mapping[str, str]
    """Every installed package and its version."""
    full: bool = False
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marker:
    """What the maker recorded of a finished environment."""

    digest: str
    seconds: float
    megabytes: float
    created: str
    full: bool = False
    """Whether the packages of the profile `full` are in it."""
    added: tuple[str, ...] = ()
    """What users asked for beside the recipe; it is added again when the environment is made again."""


@dataclass(frozen=True)
class Listing:
    """One line of `env list`. State: ready, outdated (its pins have changed since), broken or absent."""

    name: str
    state: str
    prefix: Path
    megabytes: float | None
    seconds: float | None
    full: bool = False
    added: tuple[str, ...] = ()


def environments_directory(environ: Mapping[str, str]) -> Path:
    """$TRAINSHED_ENVS, else `envs` in $TRAINSHED_HOME, else in ~/.trainshed."""
    if chosen := environ.get("TRAINSHED_ENVS"):
        return Path(chosen).expanduser().absolute()
    return trainshed_home(environ) / "envs"


def own_directory() -> Path:
    """Where environments are made, listed and removed: that of whoever runs the command."""
    return environments_directory(os.environ)


def resolve(name_or_path: str, environ: Mapping[str, str]) -> Environment:
    """The environment of this name, or the virtual environment at this path; `environ` says for whom."""
    if _is_path(name_or_path):
        return _at_path(name_or_path)
    recipe = recipe_for(name_or_path)
    prefix = environments_directory(environ) / recipe.name
    marker = read_marker(prefix)
    if marker is None or not _python(prefix).exists():
        state = "is incomplete" if prefix.exists() else "does not exist"
        raise MissingEnvironmentError(
            f"environment '{recipe.name}' {state} in {prefix.parent}",
            f"create it with: trainshed env create {recipe.name}",
            recipe.name,
        )
    versions = installed_versions(prefix)
    return Environment(
        recipe.name, prefix, _python(prefix), recipe.framework, versions, marker.full, marker.added
    )


def listing() -> tuple[Listing, ...]:
    return tuple(_list_one(name) for name in framework_names())


def remove(name: str) -> Path:
    """Deletes an environment; its wheels stay, so making it again needs no network."""
    recipe_for(name)
    prefix = own_directory() / name
    if not prefix.exists():
        raise NotFoundError(f"environment '{name}' is not in {prefix.parent}", "see: trainshed env list")
    with held(lock_path(name), LOCK_SECONDS, lambda _holder, _waited: None):
        discard(prefix)
    return prefix


def discard(prefix: Path) -> None:
    """Takes an environment away in one step, so that no one resolves a half-deleted one."""
    for stale in prefix.parent.glob(f".trash-{prefix.name}-*"):
        shutil.rmtree(stale, ignore_errors=True)
    if not prefix.exists():
        return
    trash = prefix.parent / f".trash-{prefix.name}-{uuid.uuid4().hex[:8]}"
    prefix.rename(trash)
    shutil.rmtree(trash)


def lock_path(name: str) -> Path:
    return own_directory() / ".locks" / name


def read_marker(prefix: Path) -> Marker | None:
    """None where it is missing or unreadable: either way the environment is not whole."""
    try:
        fields = json.loads((prefix / MARKER).read_text(encoding="utf-8"))
        return Marker(**fields | {"added": tuple(fields.get("added", ()))})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def site_packages(prefix: Path) -> Path | None:
    return next(iter(sorted(prefix.glob("lib/python3.*/site-packages"))), None)


def installed_versions(prefix: Path) -> dict[str, str]:
    """Read from the names of the installed packages' metadata folders: no process is started."""
    folder = site_packages(prefix)
    if folder is None:
        return {}
    found = {}
    for entry in folder.glob("*.dist-info"):
        package, _, version = entry.name.removesuffix(".dist-info").rpartition("-")
        found[normal_name(package)] = version
    return dict(sorted(found.items()))


def _is_path(text: str) -> bool:
    return os.sep in text or text.startswith((".", "~"))


def _at_path(text: str) -> Environment:
    prefix = Path(text).expanduser().absolute()
    if not _python(prefix).exists():
        raise NotFoundError(
            f"no virtual environment at {prefix}: it has no bin/python",
            f"give a virtual environment's folder, or one of: {', '.join(framework_names())}",
        )
    versions = installed_versions(prefix)
    framework = next((name for package, name in _FRAMEWORK_PACKAGES if package in versions), "")
    return Environment(str(prefix), prefix, _python(prefix), framework, versions)


def _list_one(name: str) -> Listing:
    prefix = own_directory() / name
    marker = read_marker(prefix)
    if marker is None:
        return Listing(name, "broken" if prefix.exists() else "absent", prefix, None, None)
    if not _python(prefix).exists():
        state = "broken"
    else:
        state = "ready" if marker.digest == recipe_for(name).digest() else "outdated"
    return Listing(name, state, prefix, marker.megabytes, marker.seconds, marker.full, marker.added)


def _python(prefix: Path) -> Path:
    return prefix / "bin" / "python"
