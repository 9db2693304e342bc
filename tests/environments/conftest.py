"""A real but tiny framework: one hand-made wheel, found in a folder, never in a registry."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from trainshed.environments import recipes
from trainshed.environments.recipes import Recipe


def write_wheel(folder: Path, name: str, version: str, requires: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"version = '{version}'\n")
        archive.writestr(f"{name}/gpu/kernels.bin", "x" * 1000)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


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
    """A framework `tinyframe` that needs `tinydep`, of which a newer version than the pin exists."""
    write_wheel(tmp_path / "registry", "tinyframe", "1.0", requires="tinydep")
    write_wheel(tmp_path / "registry", "tinydep", "2.0")
    write_wheel(tmp_path / "registry", "tinydep", "3.0")
    recipe = Recipe(
        name="tiny",
        framework="tinyframe",
        requirements=("tinyframe==1.0",),
        constraints=("tinydep==2.0",),
        prune=("tinyframe/gpu*",),
        check="import tinyframe, tinydep; assert tinyframe.version == '1.0'",
        megabytes=1,
    )
    monkeypatch.setitem(recipes._BY_NAME, "tiny", recipe)
    return recipe
