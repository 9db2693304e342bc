"""The wheels environments are made from, kept beside them.

What a bundle lists is downloaded once into its own folder and moved in
whole, then recorded; with the record there, no registry is contacted.
A wheel whose hash its lock does not list is refused, from a registry and from
this folder alike.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainshed import files
from trainshed.environments import lockfile
from trainshed.environments.catalog import own_directory
from trainshed.environments.commands import Maker, folder_megabytes, pip
from trainshed.environments.recipes import Recipe
from trainshed.errors import TrainshedError

_PACKAGE = re.compile(r"^ *(?:Collecting|Downloading|Saved|Processing) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Bundle:
    """Locked packages that are downloaded and installed together."""

    name: str
    packages: tuple[str, ...]
    text: str
    """The lock's lines."""
    other: str = ""
    """The same with the usual build of a framework, for registries that have no +cpu build of it."""
    framework: str = ""
    """Set if `text` has such a build: its requirements, the CUDA libraries among them, are its own to say."""

    @property
    def path(self) -> Path:
        content = repr((self.text, sys.version_info[:2], platform.machine()))
        return wheelhouse() / f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    @property
    def record(self) -> Path:
        return self.path.with_suffix(".json")

    @property
    def requirements(self) -> Path:
        """The lock as a file for pip."""
        path = self.path.with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, self.text)
        return path


def base_bundle(recipe: Recipe) -> Bundle:
    """All that the recipe's lock lists."""
    found = lockfile.entries(recipe.lock)
    other = _text(found | lockfile.entries(lockfile.CUDA_LOCK)) if recipe.cuda else ""
    return Bundle(recipe.name, tuple(found), _text(found), other)


def full_bundle(recipe: Recipe) -> Bundle:
    """What the profile `full` adds to the recipe: packages that it has already stay as they are."""
    locked = lockfile.entries(recipe.lock)
    found = {k: v for k, v in lockfile.entries(lockfile.FULL_LOCK).items() if k not in locked}
    return Bundle(f"{recipe.name}-full", tuple(found), _text(found))


def _text(entries: Mapping[str, str]) -> str:
    return "\n".join(entries.values()) + "\n"


def wheelhouse() -> Path:
    return own_directory() / ".wheels"


def fetch(bundle: Bundle, maker: Maker) -> tuple[Bundle, list[Path]]:
    """The wheels of a bundle, downloaded where they are not all here yet, and the bundle as it was found."""
    usual = replace(bundle, text=bundle.other, framework=next(iter(lockfile.entries(lockfile.CUDA_LOCK))))
    for choice in (bundle, usual) if bundle.other else (bundle,):
        if known := _recorded(choice):
            return choice, known
    try:
        return bundle, _download(bundle, maker)
    except TrainshedError as error:
        if not bundle.other or "+cpu" not in error.message:
            raise
        return usual, _download(usual, maker)


def unlocked(bundle: Bundle, wheels: list[Path]) -> list[Path]:
    """Those of its wheels that no lock lists: the CUDA libraries that a framework's build requires."""
    return [w for w in wheels if lockfile.normal_name(w.name.split("-")[0]) not in bundle.packages]


def store(wheels: list[Path]) -> list[Path]:
    """Moves finished files in; each appears atomically."""
    wheelhouse().mkdir(parents=True, exist_ok=True)
    return [wheel.replace(wheelhouse() / wheel.name) for wheel in wheels]


def staging(name: str) -> Path:
    """An empty folder on the same file system; the caller holds the environment's lock."""
    folder = wheelhouse() / f".staging-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _recorded(bundle: Bundle) -> list[Path]:
    try:
        sizes: dict[str, int] = json.loads(bundle.record.read_text(encoding="utf-8"))
        wheels = [wheelhouse() / name for name in sizes]
        whole = all(wheel.stat().st_size == sizes[wheel.name] for wheel in wheels)
    except (OSError, ValueError):
        return []
    return wheels if whole else []


def _download(bundle: Bundle, maker: Maker) -> list[Path]:
    folder = staging(bundle.name)
    downloads, scratch = folder / "wheels", folder / "scratch"
    downloads.mkdir()
    scratch.mkdir()

    def run(*arguments: str) -> None:
        maker.run(
            "download",
            pip(
                "download",
                "--no-cache-dir",  # the wheelhouse is the cache
                "--progress-bar=off",
                "--only-binary=:all:",
                f"--dest={downloads}",
                f"--find-links={wheelhouse()}",
                *arguments,
            ),
            variables={"TMPDIR": str(scratch)},
            detail=_current_package,
            measure=lambda: max(folder_megabytes(scratch), folder_megabytes(downloads)),
        )

    run("--no-deps", "--require-hashes", f"--requirement={bundle.requirements}")
    for wheel in downloads.glob(f"{bundle.framework}-*.whl") if bundle.framework else ():
        versions = folder / "versions.txt"
        pins = lockfile.locked_versions(bundle.requirements)
        versions.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        run(f"--constraint={versions}", str(wheel))
    maker.tell("download", "done", folder_megabytes(downloads))
    wheels = store(sorted(downloads.iterdir()))
    shutil.rmtree(folder)
    record = json.dumps({wheel.name: wheel.stat().st_size for wheel in wheels}, indent=1)
    files.write_atomic(bundle.record, record)
    return wheels


def _current_package(tail: str) -> str:
    """The package pip spoke of last, without the address it comes from."""
    named = _PACKAGE.findall(tail)
    return named[-1].rstrip("/").rsplit("/", 1)[-1] if named else ""
