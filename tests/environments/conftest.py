"""A real but tiny framework: one hand-made wheel, found in a folder, never in a registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from wheelkit import write_lock, write_wheel

from trainshed.environments import build, lockfile, recipes
from trainshed.environments.recipes import Recipe


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of environments; pip sees only the `registry` folder beside it."""
    folder = tmp_path / "envs"
    monkeypatch.setenv("TRAINSHED_ENVS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "registry"))
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    return folder


@pytest.fixture
def tiny(envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A framework `tinyframe` that needs `tinydep`, of which a newer version than the locked one exists."""
    registry = tmp_path / "registry"
    frame = write_wheel(registry, "tinyframe", "1.0", requires="tinydep")
    dependency = write_wheel(registry, "tinydep", "2.0")
    write_wheel(registry, "tinydep", "3.0")
    recipe = Recipe(
        name="tiny",
        framework="tinyframe",
        requirements=("tinyframe==1.0",),
        lock_path=write_lock(tmp_path / "tiny.txt", frame, dependency),
        prune=("tinyframe/gpu*",),
        check="import tinyframe, tinydep; assert tinyframe.version == '1.0'",
        megabytes=1,
    )
    monkeypatch.setitem(recipes._BY_NAME, "tiny", recipe)
    return recipe


@pytest.fixture
def tiny_full(tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The profile `full` is `tinyplot`, and a `tinydep` that the recipe has in another version."""
    registry = tmp_path / "registry"
    plot = write_wheel(registry, "tinyplot", "7.0")
    lock = write_lock(tmp_path / "full.txt", plot, registry / "tinydep-3.0-py3-none-any.whl")
    monkeypatch.setattr(lockfile, "FULL_LOCK", lock)
    monkeypatch.setattr(build, "FULL_CHECK", "import tinyplot")
    return tiny
