"""The first run without a job file, and what is said when something is missing."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support import ROOT, Shed
from trainshed.spec.guess import guess
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.foundation, pytest.mark.field]


@pytest.mark.parametrize(
    ("source", "launcher", "environment"),
    [
        ("import torch", "pytorch", "pytorch"),
        ("from torch.nn.parallel import DistributedDataParallel", "pytorch", "pytorch"),
        ("def main():\n    import lightning as L", "pytorch", "pytorch"),
        ("import torch\nimport horovod.torch as hvd", "horovod", "horovod"),
        ("import tensorflow as tf\nimport horovod.tensorflow as hvd", "horovod", "horovod-tensorflow"),
        ("import tensorflow as tf\nfrom horovod import keras as hvd", "horovod", "horovod-tensorflow"),
        ("from mindspore import nn", "mindspore", "mindspore"),
        ("import paddle.distributed as dist", "paddle", "paddle"),
        ("import keras", "tensorflow", "tensorflow"),
        ("import torchlike, os", "command", None),
        ("print 'Python 2'", "command", None),
    ],
)
def test_launcher_and_environment_follow_from_the_imports(
    tmp_path: Path, source: str, launcher: str, environment: str | None
) -> None:
    (tmp_path / "train.py").write_text(source)
    found = guess(tmp_path / "train.py")
    assert (found.launcher, found.environment) == (launcher, environment)


def test_modules_beside_the_script_count(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from src.model import Net")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/model.py").write_text("import src.layers\nimport train")
    (tmp_path / "src/layers.py").write_text("import mindspore.nn as nn")
    assert guess(tmp_path / "train.py").launcher == "mindspore"


@pytest.mark.real
def test_a_script_runs_without_a_job_file(shed: Shed, tmp_path: Path) -> None:
    (tmp_path / "hello world.py").write_text(
        "import os, sys; print(os.environ['TRAINSHED_RANK'], sys.argv[1:])"
    )
    done = shed.cli("run", tmp_path / "hello world.py", "-j", "2x1", "--", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert "0 ['--epochs', '3']" in done.stdout and "1 ['--epochs', '3']" in done.stdout
    assert "imports no known framework" in done.stderr and "run hello-world-" in done.stderr


def test_what_was_guessed_is_said_and_can_be_given(shed: Shed, tmp_path: Path) -> None:
    venv.create(tmp_path / "mine", with_pip=False)
    (tmp_path / "train.py").write_text("import torch")
    words = ["run", tmp_path / "train.py", "--environment", tmp_path / "mine", "--dry-run", "--json"]
    guessed = shed.cli(*words)
    assert "note: launcher pytorch, because train.py imports torch" in guessed.stderr
    assert json.loads(guessed.stdout)["launcher"] == "pytorch"
    given = shed.cli(*words, "--launcher", "command")
    assert "note" not in given.stderr and json.loads(given.stdout)["launcher"] == "command"


@pytest.mark.parametrize("source", ["import mindspore", "print(1)"])
def test_init_writes_a_job_file_that_loads(shed: Shed, tmp_path: Path, source: str) -> None:
    (tmp_path / "train.py").write_text(source)
    done = shed.cli("init", tmp_path / "train.py")
    assert done.returncode == 0, done.stderr
    job = load_job(tmp_path)
    assert job.launcher == ("mindspore" if "mindspore" in source else "command")
    assert job.resources.shape == "1x2" and job.entry == "train.py"
    again = shed.cli("init", tmp_path / "train.py")
    assert again.returncode == 64 and "exists" in again.stderr


def test_every_key_that_init_comments_out_is_valid(shed: Shed, tmp_path: Path) -> None:
    for name in ("train.py", "requirements.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "data").mkdir()
    shed.cli("init", tmp_path / "train.py")
    path = tmp_path / "job.yaml"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line.removeprefix("# ") for line in lines[1:])]))
    assert load_job(path).args == ("train", "10")


def test_a_missing_environment_is_named_with_both_ways_to_make_it(shed: Shed) -> None:
    job = shed.job("a", {"t.py": ""}, entry="t.py", environment="plain")
    done = shed.cli("run", job, env={"TRAINSHED_ENVS": str(shed.home / "envs")})
    assert done.returncode == 64
    assert "trainshed env create plain, or add --yes" in done.stderr


@pytest.mark.real
def test_a_missing_environment_is_made_with_yes(shed: Shed) -> None:
    job = shed.job("a", {"t.py": "import yaml; print(yaml.__file__)"}, entry="t.py", environment="plain")
    done = shed.cli("run", job, "--yes", env={"TRAINSHED_ENVS": str(shed.home / "envs")})
    assert done.returncode == 0, done.stderr
    assert str(shed.home / "envs/plain") in done.stdout


def test_on_a_terminal_a_missing_environment_is_offered_and_may_be_declined(shed: Shed) -> None:
    job = shed.job("a", {"t.py": ""}, entry="t.py", environment="plain")
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trainshed.cli.main", "run", str(job)],
        env=shed.env | {"TRAINSHED_ENVS": str(shed.home / "envs")},
        stdin=side,
        stdout=subprocess.DEVNULL,
        stderr=side,
    )
    os.close(side)
    said = b""
    while b"Create it now? [Y/n]" not in said:
        said += os.read(main, 1000)
    os.write(main, b"n\n")
    assert process.wait(60) == 64
    os.close(main)
    assert not (shed.home / "envs/plain").exists()


@pytest.mark.parametrize(
    ("module", "environment", "words"),
    [
        ("torch", None, "write `environment: pytorch` in the job file (trainshed env create pytorch)"),
        ("timm", None, "write `environment: NAME` in the job file"),
        ("timm", "pytorch", "trainshed env add pytorch timm, or list it in a file of the code"),
        ("cv2.gapi", "mindspore", "trainshed env create mindspore --full"),
        ("timm", "/my/venv", "install timm there, or list timm in a file"),
    ],
)
def test_a_missing_module_says_what_to_write(module: str, environment: str | None, words: str) -> None:
    from trainshed.api.advice import missing_module

    hint = missing_module([f"ModuleNotFoundError: No module named '{module}'"], environment, "/x/bin/python")
    assert words in hint and "the job ran in /x/bin/python" in hint
    assert missing_module(["ValueError: 1"], environment, "/x/bin/python") == ""


@pytest.mark.real
def test_a_failed_run_says_in_which_python_it_ran(shed: Shed) -> None:
    job = shed.job("a", {"t.py": "import nosuchmodule"}, entry="t.py")
    done = shed.cli("run", job)
    assert done.returncode == 1
    assert f"hint: the job ran in {sys.executable} (Trainshed's own Python" in done.stderr
    assert "which has no module nosuchmodule" in shed.cli("show", "last").stdout


@pytest.mark.real
def test_packages_that_the_job_lists_are_installed_for_it_alone(shed: Shed, tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "tinyextra").mkdir(parents=True)
    (package / "tinyextra/__init__.py").write_text("words = 'installed'")
    (package / "setup.py").write_text(
        "from setuptools import setup; setup(name='tinyextra', packages=['tinyextra'])"
    )
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", str(wheels), str(package)]
    subprocess.run(pip, check=True, cwd=ROOT)
    (wheel,) = wheels.iterdir()
    files = {"t.py": "import tinyextra; print(tinyextra.words)", "more.txt": wheel.name}
    job = shed.job("a", files, entry="t.py", requirements="more.txt")
    (job.parent / wheel.name).write_bytes(wheel.read_bytes())
    (job.parent / "more.txt").write_text(f"./{wheel.name}\n")
    done = shed.cli("run", job)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "installed" in done.stdout
