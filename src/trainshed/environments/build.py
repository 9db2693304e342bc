"""Makes an environment: wheels, virtual environment, install, check, marker.

A virtual environment cannot be moved, so it is made in place under a lock and
counts as made only once its marker is written. Whatever is found without a
marker was left by a maker that died, and is made again. One that is up to date
only gets what it lacks; one made from another recipe is made again, with all
that was added to it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import venv
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from trainshed import files
from trainshed.environments import catalog, source, wheelhouse
from trainshed.environments.commands import Maker, folder_megabytes, pip
from trainshed.environments.locks import held
from trainshed.environments.progress import BuildProgress, ProgressCallback, silent
from trainshed.environments.recipes import FULL_CHECK, Recipe, recipe_for
from trainshed.errors import RefusedError, TrainshedError, UsageError
from trainshed.plural import counted

_FULL_MEGABYTES = 900


def create(
    name: str,
    progress: ProgressCallback = silent,
    *,
    force: bool = False,
    full: bool = False,
    packages: Sequence[str] = (),
) -> catalog.Environment:
    """Makes the environment unless it is there and up to date; two makers wait for one another.

    `full` and `packages` say what it should hold beside its recipe, and add to what it holds.
    """
    recipe = recipe_for(name)
    for package in packages:
        if not package.strip() or package.startswith("-"):
            raise UsageError(f"invalid package: {package!r}", "name packages as pip does: timm, timm==1.0.9")
    started = time.monotonic()

    def waiting(holder: str, waited: float) -> None:
        progress(BuildProgress(name, "wait", f"for process {holder}", waited))

    prefix = catalog.own_directory() / name
    try:
        with held(catalog.lock_path(name), catalog.LOCK_SECONDS, waiting) as lock:
            maker = Maker(name, lock, wheelhouse.wheelhouse() / "logs" / f"{name}.log", progress, started)
            _ensure(recipe, prefix, maker, force, full, packages)
    except OSError as error:  # a folder that cannot be written, a full disk, a folder deleted meanwhile
        raise TrainshedError(
            f"environment '{name}' could not be created: {error}",
            f"check {prefix.parent}, then: trainshed env create {name}",
            code="environment",
        ) from error
    return catalog.resolve(name, os.environ)


def add(name: str, packages: Sequence[str], progress: ProgressCallback = silent) -> catalog.Environment:
    """Installs packages into an environment that is there; what it holds already keeps its version."""
    catalog.resolve(name, os.environ)
    return create(name, progress, packages=packages)


def _ensure(
    recipe: Recipe, prefix: Path, maker: Maker, force: bool, full: bool, packages: Sequence[str]
) -> None:
    marker = catalog.read_marker(prefix)
    added = tuple(dict.fromkeys((*(marker.added if marker else ()), *packages)))
    full = full or (marker is not None and marker.full)
    current = marker is not None and not force and _is_current(recipe, marker, prefix)
    if current and marker and (full, added) == (marker.full, marker.added):
        return
    maker.log.unlink(missing_ok=True)
    if marker is None or not current:
        _require_room(recipe, prefix, full)
        marker = _make(recipe, prefix, maker)
    if full and not marker.full:
        _install(wheelhouse.full_bundle(recipe), prefix, maker)
        _check(FULL_CHECK, "full", prefix, maker)
        marker = _write_marker(prefix, replace(marker, full=True))
    if missing := [package for package in added if package not in marker.added]:
        _add(missing, prefix, maker)
        marker = _write_marker(prefix, replace(marker, added=added))
    maker.tell("ready", str(prefix), marker.megabytes)


def _is_current(recipe: Recipe, marker: catalog.Marker, prefix: Path) -> bool:
    return marker.digest == recipe.digest() and (prefix / "bin" / "python").exists()


def _make(recipe: Recipe, prefix: Path, maker: Maker) -> catalog.Marker:
    if recipe.build and not source.has_wheel(recipe.build):
        source.require_tools(recipe.build)
    bundle = wheelhouse.base_bundle(recipe)
    wheelhouse.fetch(bundle, maker)
    catalog.discard(prefix)
    venv.create(prefix, with_pip=False, symlinks=True)
    _install(bundle, prefix, maker)
    if recipe.build:
        wheel = source.built_wheel(recipe.build, prefix, maker)
        _pip_install([str(wheel)], "1 package", prefix, maker)
    _prune(recipe, prefix)
    _check(recipe.check, recipe.framework or recipe.name, prefix, maker)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    marker = catalog.Marker(recipe.digest(), round(time.monotonic() - maker.started, 1), 0, created)
    return _write_marker(prefix, marker)


def _install(bundle: wheelhouse.Bundle, prefix: Path, maker: Maker) -> None:
    """What the bundle lists, after each wheel's hash was compared with its lock."""
    bundle, wheels = wheelhouse.fetch(bundle, maker)
    arguments = [f"--find-links={wheelhouse.wheelhouse()}", "--require-hashes", f"-r{bundle.requirements}"]
    _pip_install(arguments, counted(len(bundle.packages), "package"), prefix, maker)
    if more := wheelhouse.unlocked(bundle, wheels):
        _pip_install(list(map(str, more)), counted(len(more), "package"), prefix, maker)


def _pip_install(arguments: Sequence[str], what: str, prefix: Path, maker: Maker) -> None:
    """Modules are compiled by the check, which imports the ones that get used: far fewer."""
    fixed = ("--no-index", "--no-deps", "--no-compile", "--no-warn-script-location")
    maker.run(
        "install",
        pip("install", *fixed, *arguments, prefix=prefix),
        detail=lambda _: what,
        measure=lambda: folder_megabytes(prefix),
    )


def _add(packages: Sequence[str], prefix: Path, maker: Maker) -> None:
    """From the registry, with all that is installed held where it is."""
    held_versions = wheelhouse.staging(f"{maker.name}-add") / "installed.txt"
    versions = catalog.installed_versions(prefix)
    held_versions.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    try:
        maker.run(
            "add",
            pip(
                "install",
                "--no-warn-script-location",
                "--progress-bar=off",
                f"--find-links={wheelhouse.wheelhouse()}",
                f"--constraint={held_versions}",
                *packages,
                prefix=prefix,
            ),
            detail=lambda _: " ".join(packages),
            measure=lambda: folder_megabytes(prefix),
        )
    finally:
        shutil.rmtree(held_versions.parent, ignore_errors=True)


def _check(code: str, what: str, prefix: Path, maker: Maker) -> None:
    # From the root folder: a module lying in the user's folder must not pass for the framework.
    python = str(prefix / "bin" / "python")
    maker.run("check", [python, "-c", code], detail=lambda _: what, cwd=Path("/"))


def _prune(recipe: Recipe, prefix: Path) -> None:
    packages = catalog.site_packages(prefix) or prefix
    for pattern in recipe.prune:
        for path in packages.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _require_room(recipe: Recipe, prefix: Path, full: bool) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    needed = recipe.megabytes + (_FULL_MEGABYTES if full else 0)
    free = shutil.disk_usage(prefix.parent).free / 1e6
    if free < needed:
        raise RefusedError(
            f"environment '{recipe.name}' needs about {needed} MB in {prefix.parent}; {free:.0f} MB are free",
            "free disk space, or set TRAINSHED_ENVS to a folder on a larger disk",
        )


def _write_marker(prefix: Path, marker: catalog.Marker) -> catalog.Marker:
    """From now on the environment counts as made, with what the marker says."""
    marker = replace(marker, megabytes=round(folder_megabytes(prefix), 1))
    files.write_atomic(prefix / catalog.MARKER, json.dumps(asdict(marker), indent=1) + "\n")
    return marker
