"""The wheels environments are made from, kept beside them.

What a recipe needs is downloaded once into a folder of its own and moved in
whole, then listed; with the list there, nothing is asked of any registry.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from trainshed.environments.catalog import environments_directory
from trainshed.environments.commands import Maker, folder_megabytes, pip
from trainshed.environments.recipes import Recipe

_PACKAGE = re.compile(r"^ *(?:Collecting|Downloading|Saved|Processing) (\S+)", re.MULTILINE)


def wheelhouse() -> Path:
    return environments_directory() / ".wheels"


def wheels_for(recipe: Recipe, maker: Maker) -> list[Path]:
    """The wheels of a recipe, downloaded where they are not all here yet."""
    known = _listed(recipe)
    return known if known else _download(recipe, maker)


def store(wheels: list[Path]) -> list[Path]:
    """Moves finished files in; each appears whole or not at all."""
    wheelhouse().mkdir(parents=True, exist_ok=True)
    return [wheel.replace(wheelhouse() / wheel.name) for wheel in wheels]


def staging(name: str) -> Path:
    """An empty folder on the same file system; the caller holds the environment's lock."""
    folder = wheelhouse() / f".staging-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _list_path(recipe: Recipe) -> Path:
    return wheelhouse() / f"{recipe.name}-{recipe.digest()}.json"


def _listed(recipe: Recipe) -> list[Path]:
    try:
        sizes: dict[str, int] = json.loads(_list_path(recipe).read_text(encoding="utf-8"))
        wheels = [wheelhouse() / name for name in sizes]
        whole = all(wheel.stat().st_size == sizes[wheel.name] for wheel in wheels)
    except (OSError, ValueError):
        return []
    return wheels if whole else []


def _download(recipe: Recipe, maker: Maker) -> list[Path]:
    folder = staging(recipe.name)
    downloads, scratch = folder / "wheels", folder / "scratch"
    downloads.mkdir()
    scratch.mkdir()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(recipe.constraints) + "\n", encoding="utf-8")
    maker.run(
        "download",
        pip(
            "download",
            "--no-cache-dir",  # the wheelhouse is the cache
            "--progress-bar=off",
            "--only-binary=:all:",
            f"--dest={downloads}",
            f"--find-links={wheelhouse()}",
            f"--constraint={constraints}",
            *recipe.requirements,
        ),
        variables={"TMPDIR": str(scratch)},
        detail=_current_package,
        measure=lambda: max(folder_megabytes(scratch), folder_megabytes(downloads)),
    )
    maker.tell("download", "done", folder_megabytes(downloads))
    wheels = store(sorted(downloads.iterdir()))
    shutil.rmtree(folder)
    record = json.dumps({wheel.name: wheel.stat().st_size for wheel in wheels}, indent=1)
    pending = _list_path(recipe).with_suffix(".new")
    pending.write_text(record, encoding="utf-8")
    pending.replace(_list_path(recipe))
    return wheels


def _current_package(tail: str) -> str:
    """The package pip spoke of last, without the address it comes from."""
    named = _PACKAGE.findall(tail)
    return named[-1].rstrip("/").rsplit("/", 1)[-1] if named else ""
