"""What an environment holds beside its recipe: packages, the full profile; and hashes that must fit."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wheelkit import write_lock, write_wheel

from trainshed import environments
from trainshed.cli.env import app
from trainshed.environments import lockfile, recipes, source
from trainshed.environments.commands import Maker
from trainshed.environments.recipes import Recipe, SourceBuild
from trainshed.errors import NotFoundError, TrainshedError, UsageError

pytestmark = [pytest.mark.foundation, pytest.mark.field]


def test_packages_are_added_to_an_environment_that_is_there(tiny: Recipe, envs: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "registry", "tinyextra", "4.0", requires="tinydep")
    environments.create("tiny")
    before = (envs / "tiny/bin/python").lstat().st_ctime_ns

    made = environments.add("tiny", ["tinyextra"])
    assert made.versions == {"tinydep": "2.0", "tinyframe": "1.0", "tinyextra": "4.0"}
    assert made.added == ("tinyextra",)
    assert (envs / "tiny/bin/python").lstat().st_ctime_ns == before  # in place


def test_an_added_package_never_changes_what_is_locked(tiny: Recipe, envs: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "registry", "tinyextra", "4.0", requires="tinydep>=3")
    environments.create("tiny")
    with pytest.raises(TrainshedError, match=r"'tiny' keeps what it had: add failed: .*tinydep"):
        environments.add("tiny", ["tinyextra"])
    assert environments.resolve("tiny", os.environ).versions == {"tinydep": "2.0", "tinyframe": "1.0"}


def test_what_was_added_is_added_again_when_the_recipe_changes(
    tiny_full: Recipe, envs: Path, tmp_path: Path
) -> None:
    registry = tmp_path / "registry"
    write_wheel(registry, "tinyextra", "4.0")
    environments.create("tiny", full=True, packages=["tinyextra==4.0"])
    write_lock(
        tiny_full.lock, *(registry / f"{x}-py3-none-any.whl" for x in ("tinyframe-1.0", "tinydep-3.0"))
    )

    made = environments.create("tiny")
    assert made.versions == {"tinydep": "3.0", "tinyframe": "1.0", "tinyextra": "4.0", "tinyplot": "7.0"}
    assert made.full and made.added == ("tinyextra==4.0",)


def test_the_full_profile_leaves_the_recipes_own_versions(tiny_full: Recipe, envs: Path) -> None:
    environments.create("tiny")
    made = environments.create("tiny", full=True)
    assert made.versions == {"tinydep": "2.0", "tinyframe": "1.0", "tinyplot": "7.0"}
    assert {row.name: row.state for row in environments.listing()}["tiny"] == "ready"


def test_the_command_line_adds_and_shows_what_was_added(
    tiny_full: Recipe, envs: Path, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "registry", "tinyextra", "4.0")
    write_wheel(tmp_path / "registry", "tinymore", "5.0")
    run = CliRunner().invoke
    created = run(app, ["create", "tiny", "--with", "tinyextra", "--full", "--json"])
    assert created.exit_code == 0, created.output
    assert json.loads(created.stdout)[0]["added"] == ["tinyextra"]
    assert run(app, ["add", "tiny", "tinymore"]).exit_code == 0
    assert "added      full, tinyextra, tinymore" in run(app, ["show", "tiny"]).stdout


def test_adding_to_an_environment_that_is_not_there_names_the_command_that_makes_it(
    tiny: Recipe, envs: Path
) -> None:
    with pytest.raises(NotFoundError, match="trainshed env create tiny"):
        environments.add("tiny", ["tinyextra"])


def test_an_option_of_pip_is_no_package(tiny: Recipe, envs: Path) -> None:
    with pytest.raises(UsageError, match="invalid package: '--upgrade'"):
        environments.create("tiny", packages=["--upgrade"])


@pytest.mark.core
def test_a_registry_that_offers_another_file_is_refused(tiny: Recipe, envs: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "registry", "tinyframe", "1.0", requires="somethingelse")
    with pytest.raises(
        TrainshedError, match=r"tinyframe==1.0 has sha256 [0-9a-f]{64}, which its lock file does not list"
    ) as refused:
        environments.create("tiny")
    assert refused.value.code == "wrong-hash"
    assert not (envs / "tiny").exists()


@pytest.mark.core
def test_a_kept_wheel_that_was_changed_is_refused(tiny: Recipe, envs: Path) -> None:
    environments.create("tiny")
    environments.remove("tiny")
    wheel = envs / ".wheels/tinyframe-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[60] ^= 1  # the size stays
    wheel.write_bytes(content)
    os.environ["PIP_FIND_LINKS"] = ""  # restored by the fixture
    with pytest.raises(TrainshedError, match="which its lock file does not list"):
        environments.create("tiny")


@pytest.mark.core
def test_a_changed_source_package_is_refused(
    tiny: Recipe, envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tinysource-1.0"
    folder.mkdir()
    (folder / "setup.py").write_text("from setuptools import setup; setup(name='tinysource', version='1.0')")
    shutil.make_archive(str(tmp_path / "registry/tinysource-1.0"), "gztar", tmp_path, "tinysource-1.0")
    build = SourceBuild("tinysource", "1.0", "x", variables=(), sha256="0" * 64)

    def download(self: Maker, step: str, command: list[str], **_: object) -> None:
        (target,) = [word.removeprefix("--dest=") for word in command if word.startswith("--dest=")]
        shutil.copy(tmp_path / "registry/tinysource-1.0.tar.gz", target)

    monkeypatch.setattr(Maker, "run", download)
    maker = Maker("tiny", 0, tmp_path / "log", lambda _: None, 0.0)
    with pytest.raises(TrainshedError, match=r"tinysource-1.0.tar.gz has sha256 .*its recipe says 0000"):
        source._source_package(build, tmp_path, maker)
    assert not list(envs.glob(".wheels/*.tar.gz"))


@pytest.mark.real
def test_the_plain_environment_has_yaml_and_a_pip_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the registry of this machine, with the locks as they are shipped."""
    monkeypatch.setenv("TRAINSHED_ENVS", str(tmp_path / "envs"))
    made = environments.create("plain")
    script = "import yaml, easydict, tqdm, numpy; print(yaml.safe_load('a: [1, 2]'))"
    ran = subprocess.run([made.python, "-c", script], capture_output=True, text=True, cwd="/")
    assert ran.stdout == "{'a': [1, 2]}\n", ran.stderr
    listed = subprocess.run([made.prefix / "bin/pip", "list"], capture_output=True, text=True, cwd="/")
    assert "PyYAML" in listed.stdout, listed.stderr


@pytest.mark.core
def test_a_registry_without_the_cpu_build_gives_the_usual_one_with_its_own_requirements(
    tiny: Recipe, envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = tmp_path / "registry"
    usual = registry / "tinyframe-1.0-py3-none-any.whl"
    write_wheel(registry, "tinyframe", "1.0", requires="tinycuda")
    write_wheel(registry, "tinycuda", "13.0")
    monkeypatch.setattr(lockfile, "CUDA_LOCK", write_lock(tmp_path / "cuda.txt", usual))
    special = write_wheel(tmp_path / "elsewhere", "tinyframe", "1.0+cpu")
    write_lock(tiny.lock, special, registry / "tinydep-2.0-py3-none-any.whl")
    monkeypatch.setitem(recipes._BY_NAME, "tiny", dataclasses.replace(tiny, cuda=True))

    assert environments.create("tiny").versions == {"tinycuda": "13.0", "tinydep": "2.0", "tinyframe": "1.0"}

    shutil.copy(special, registry)
    shutil.rmtree(envs)
    monkeypatch.setitem(
        recipes._BY_NAME, "tiny", dataclasses.replace(tiny, cuda=True, check="import tinyframe")
    )
    assert environments.create("tiny").versions == {"tinydep": "2.0", "tinyframe": "1.0+cpu"}
