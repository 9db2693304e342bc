"""Makes an environment: wheels, virtual environment, install, check, marker.

A virtual environment cannot be moved, so it is made in place under a lock and
counts as made only once its marker is written. Whatever is found without a
marker was left by a maker that died, and is made anew.
"""

from __future__ import annotations

import json
import shutil
import time
import venv
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from trainshed.environments import catalog, source, wheelhouse
from trainshed.environments.commands import Maker, folder_megabytes, pip
from trainshed.environments.locks import held
from trainshed.environments.progress import Progress, ProgressCallback, silent
from trainshed.environments.recipes import Recipe, recipe_for
from trainshed.errors import RefusedError, TrainshedError


def create(name: str, progress: ProgressCallback = silent, *, force: bool = False) -> catalog.Environment:
    """Makes the environment unless it is there and up to date; two makers wait for one another."""
    recipe = recipe_for(name)
    started = time.monotonic()

    def waiting(holder: str, waited: float) -> None:
        progress(Progress(name, "wait", f"for process {holder}", waited))

    prefix = catalog.environments_directory() / name
    try:
        with held(catalog.lock_path(name), catalog.LOCK_SECONDS, waiting) as lock:
            if force or not _is_current(recipe, prefix):
                log = wheelhouse.wheelhouse() / "logs" / f"{name}.log"
                log.unlink(missing_ok=True)
                _make(recipe, prefix, Maker(name, lock, log, progress, started))
    except OSError as error:  # a folder that cannot be written, a full disk, a folder deleted meanwhile
        raise TrainshedError(
            f"environment '{name}' could not be made: {error}",
            f"check {prefix.parent}, then: trainshed env create {name}",
            code="environment",
        ) from error
    return catalog.resolve(name)


def _is_current(recipe: Recipe, prefix: Path) -> bool:
    marker = catalog.read_marker(prefix)
    return marker is not None and marker.digest == recipe.digest() and (prefix / "bin" / "python").exists()


def _make(recipe: Recipe, prefix: Path, maker: Maker) -> None:
    _require_room(recipe, prefix)
    if recipe.build and not source.has_wheel(recipe.build):
        source.require_tools(recipe.build)
    wheels = wheelhouse.wheels_for(recipe, maker)
    catalog.discard(prefix)
    venv.create(prefix, with_pip=False, symlinks=True)
    _install(wheels, prefix, maker)
    if recipe.build:
        _install([source.built_wheel(recipe.build, prefix, maker)], prefix, maker)
    _prune(recipe, prefix)
    python = str(prefix / "bin" / "python")
    # From the root folder: a module lying in the user's folder must not pass for the framework.
    maker.run("check", [python, "-c", recipe.check], detail=lambda _: recipe.framework, cwd=Path("/"))
    marker = catalog.Marker(
        digest=recipe.digest(),
        seconds=round(time.monotonic() - maker.started, 1),
        megabytes=round(folder_megabytes(prefix), 1),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    _write_marker(prefix, marker)
    maker.tell("ready", str(prefix), marker.megabytes)


def _install(wheels: list[Path], prefix: Path, maker: Maker) -> None:
    """Modules are compiled by the check, which imports the ones that get used: far fewer."""
    maker.run(
        "install",
        pip(
            "install",
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--no-warn-script-location",
            *map(str, wheels),
            prefix=prefix,
        ),
        detail=lambda _: f"{len(wheels)} packages",
        measure=lambda: folder_megabytes(prefix),
    )


def _prune(recipe: Recipe, prefix: Path) -> None:
    packages = catalog.site_packages(prefix) or prefix
    for pattern in recipe.prune:
        for path in packages.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _require_room(recipe: Recipe, prefix: Path) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(prefix.parent).free / 1e6
    if free < recipe.megabytes:
        raise RefusedError(
            f"environment '{recipe.name}' needs about {recipe.megabytes} MB in {prefix.parent}; "
            f"{free:.0f} MB are free",
            "free some room, or set TRAINSHED_ENVS to a folder on a larger disk",
        )


def _write_marker(prefix: Path, marker: catalog.Marker) -> None:
    pending = prefix / f"{catalog.MARKER}.new"
    pending.write_text(json.dumps(asdict(marker), indent=1) + "\n", encoding="utf-8")
    pending.replace(prefix / catalog.MARKER)
