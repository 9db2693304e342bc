"""Finding environments: names, paths, and what is said when one is missing."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainshed import environments
from trainshed.cli.env import app
from trainshed.environments import lockfile, locks, recipes, source
from trainshed.environments.recipes import Recipe
from trainshed.environments.wheelhouse import _current_package
from trainshed.errors import NotFoundError, TrainshedError

pytestmark = [pytest.mark.foundation]


@pytest.mark.parametrize("name", environments.framework_names())
def test_a_missing_environment_names_the_command_that_makes_it(name: str, envs: Path) -> None:
    with pytest.raises(NotFoundError, match=f"trainshed env create {name}"):
        environments.resolve(name, os.environ)


def test_an_unknown_name_lists_all_known_ones(envs: Path) -> None:
    with pytest.raises(
        NotFoundError,
        match=r"'mindspor' is not known.*did you mean mindspore\? known: mindspore, pytorch, paddle, horovod",
    ):
        environments.resolve("mindspor", os.environ)


def test_a_name_cannot_reach_outside_the_folder_of_environments(envs: Path) -> None:
    envs.mkdir(exist_ok=True)
    outside = envs.parent / "x"
    venv.create(outside, with_pip=False)
    for name in ("../x", "..", "a/../../x", str(outside)):
        with pytest.raises(NotFoundError):
            environments.remove(name)
    assert (outside / "pyvenv.cfg").exists()


def test_any_virtual_environment_can_be_given_by_its_path(tmp_path: Path) -> None:
    venv.create(tmp_path / "mine", with_pip=False)
    (site,) = (tmp_path / "mine").glob("lib/python3.*/site-packages")
    (site / "torch-2.13.0+cpu.dist-info").mkdir()
    (site / "Typing_Extensions-4.16.0.dist-info").mkdir()

    found = environments.resolve(str(tmp_path / "mine"), os.environ)
    assert found.framework == "pytorch"
    assert found.versions == {"torch": "2.13.0+cpu", "typing-extensions": "4.16.0"}
    assert found.python == tmp_path / "mine/bin/python"


def test_a_path_without_a_python_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no bin/python"):
        environments.resolve(str(tmp_path), os.environ)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TRAINSHED_ENVS": "/a/envs", "TRAINSHED_HOME": "/b"}, "/a/envs"),
        ({"TRAINSHED_HOME": "/b"}, "/b/envs"),
        ({"HOME": "/home/someone"}, "/home/someone/.trainshed/envs"),
    ],
)
def test_the_folder_of_environments_follows_the_variables(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRAINSHED_ENVS", "TRAINSHED_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environments.environments_directory(os.environ) == Path(expected)


@pytest.mark.core
@pytest.mark.parametrize("name", environments.framework_names())
def test_every_lock_gives_a_version_and_hashes_to_all_that_its_recipe_asks_for(name: str) -> None:
    recipe = recipes.recipe_for(name)
    versions = lockfile.locked_versions(recipe.lock)
    lines = recipe.lock.read_text().splitlines()
    assert len(versions) == sum("==" in line for line in lines)  # each entry is whole, and is there once
    assert versions["numpy"].startswith("1.")  # MindSpore and old TensorFlow know no numpy 2
    for requirement in (*recipe.requirements, *recipe.alone):
        package, _, version = requirement.partition("==")
        assert versions[package].partition("+")[0] == (version or versions[package])


@pytest.mark.field
@pytest.mark.parametrize("name", environments.framework_names())
def test_every_environment_has_what_nearly_all_published_scripts_import(name: str) -> None:
    versions = lockfile.locked_versions(recipes.recipe_for(name).lock)
    assert {"pyyaml", "easydict", "tqdm", "pip", "numpy"} <= versions.keys()


@pytest.mark.field
def test_the_full_profile_has_what_the_platforms_images_have() -> None:
    versions = lockfile.locked_versions(lockfile.FULL_LOCK)
    assert {
        "opencv-python-headless", "pandas", "scikit-learn", "matplotlib", "tensorboard", "pillow", "scipy"
    } <= versions.keys()  # fmt: skip


def test_a_digest_changes_with_the_lock_and_with_nothing_else(tiny: Recipe) -> None:
    before = tiny.digest()
    assert dataclasses.replace(tiny, megabytes=7).digest() == before
    tiny.lock.write_text(tiny.lock.read_text().replace("tinydep==2.0", "tinydep==3.0"))
    assert tiny.digest() != before


def test_a_lock_held_too_long_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path\n"
            "from trainshed.environments.locks import held\n"
            f"with held(Path({str(path)!r}), 1, lambda *_: None):\n"
            " print('held', flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(TrainshedError, match=f"for process {holder.pid},"),
            locks.held(path, 0.3, lambda *_: None),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locks.held(path, 5, lambda *_: None):
        pass


def test_an_edit_that_does_not_fit_the_source_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "CMakeLists.txt"
    file.write_text("set(A 1)\nset(A 1)\n")
    with pytest.raises(TrainshedError, match="2 times, not once"):
        source._edit(file, "set(A 1)", "set(A 2)")
    file.write_text("set(A 1)\n")
    source._edit(file, "set(A 1)", "set(A 2)")
    assert file.read_text() == "set(A 2)\n"


def test_progress_names_the_package_but_not_where_it_comes_from() -> None:
    tail = "Collecting torch\n  Downloading https://user:pw@host/x/torch-2.whl (800 MB)\n"
    assert _current_package(tail) == "torch-2.whl"


def test_compile_progress_is_the_compilers_own_percentage() -> None:
    tail = "[  3%] Building CXX a.o\n[ 42%] Building CXX b.o\nnote: x\n"
    assert source._compile_step(tail) == "42%"
    assert source._compile_step("running bdist_wheel\n") == "preparing"


def test_the_command_line_makes_lists_shows_and_removes(tiny: Recipe, envs: Path) -> None:
    run = CliRunner().invoke
    created = run(app, ["create", "tiny", "--json"])
    assert created.exit_code == 0, created.output
    assert json.loads(created.stdout)[0]["versions"]["tinyframe"] == "1.0"
    states = {row["name"]: row["state"] for row in json.loads(run(app, ["list", "--json"]).stdout)}
    assert states["tiny"] == "ready" and states["mindspore"] == "absent"
    assert "tinydep 2.0" in run(app, ["show", "tiny"]).stdout
    assert run(app, ["rm", "tiny"]).exit_code == 0
    assert isinstance(run(app, ["show", "tiny"]).exception, NotFoundError)
