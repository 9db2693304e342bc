"""The README's way to install, in its own virtual environment, away from the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from support import ENVIRONMENTS, ROOT

pytestmark = [pytest.mark.foundation, pytest.mark.field, pytest.mark.real, pytest.mark.timeout(900)]
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new user's home folder, in which Trainshed was installed as the README says."""
    home = tmp_path_factory.mktemp("user")
    source = home / "source"
    subprocess.run(["git", "-C", ROOT, "checkout-index", "-a", f"--prefix={source}/"], check=True)
    _shell(home, _blocks()[0], source)
    return home


def test_the_readmes_first_commands_work_outside_the_checkout(home: Path) -> None:
    work = home / "work"
    work.mkdir()
    # A busy machine may make a result unstable, which is a verdict too.
    commands = re.sub(r"^(trainshed bench run .*)$", r"\1 || true", _blocks()[1], flags=re.M)
    said = _shell(home, f"export PATH=~/trainshed/bin:$PATH\n{commands}", work)
    assert "modelarts-mindspore-resnet" in said and "apulis-horovod" in said
    assert "rank 1 of 2" in said, said[-3000:]
    assert re.search(r"^resnet50 tiny, pytorch: (valid|unstable)", said, re.M), said[-3000:]
    # Nothing was written into the installed package, and nothing it says points to the checkout,
    # but for the framework environments, which the tests share and may keep there.
    assert not list((home / "trainshed").glob("lib/*/site-packages/trainshed/_shipped/**/digits"))
    assert str(ROOT) not in said.replace(str(ENVIRONMENTS), "")


def test_a_plain_job_needs_no_environment(home: Path) -> None:
    work = home / "plain"
    work.mkdir()
    (work / "job.yaml").write_text("{name: hello, code: ., entry: hello.py, resources: 1x2}")
    (work / "hello.py").write_text("import os; print('hello from', os.environ['TRAINSHED_RANK'])")
    said = _shell(home, "~/trainshed/bin/trainshed run job.yaml", work)
    assert "hello from 0" in said and "hello from 1" in said


def test_wheel_and_source_package_are_whole(home: Path) -> None:
    (wheel,) = (home / "source/dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith("METADATA")]
        described = archive.read(metadata).decode()
    for name in (
        "_shipped/examples/data/digits.bin.xz",
        "_shipped/examples/apulis-horovod/job.yaml",
        "_shipped/workloads/resnet50/workload.yaml",
        "environments/locks/mindspore.txt",
        "payload/common/trainshed_meter.py",
    ):
        assert f"trainshed/{name}" in names
    assert not [name for name in names if "__pycache__" in name or "/digits/" in name or name.endswith(".o")]
    for line in (
        "Author: Trainshed maintainers",
        "Keywords: ",
        "Classifier: Typing :: Typed",
        "Provides-Extra: store",
    ):
        assert line in described
    build = "import setuptools.build_meta as b; print(b.build_sdist('dist'))"
    _shell(
        home,
        f'{home}/trainshed/bin/pip install -q setuptools\n{home}/trainshed/bin/python -c "{build}"',
        home / "source",
    )
    (source,) = (home / "source/dist").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"examples/data/digits.bin.xz", "workloads/bert/workload.yaml", "setup.py", "README.md"} <= inside


def _blocks() -> list[str]:
    text = (ROOT / "README.md").read_text()
    return _BLOCK.findall(text[text.index("## Install") : text.index("## ", text.index("## Install") + 5)])


def _shell(home: Path, script: str, cwd: Path) -> str:
    """What the commands printed; each must succeed. The framework environment is made beforehand."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINSHED_", "PYTHON", "VIRTUAL_ENV"))}
    # pip's settings of this machine count, though the home is another.
    settings = Path("~/.config/pip/pip.conf").expanduser()
    if settings.exists():
        clean.setdefault("PIP_CONFIG_FILE", str(settings))
    done = subprocess.run(
        ["/bin/bash", "-ec", script.replace("trainshed env create pytorch", "trainshed env show pytorch")],
        cwd=cwd,
        env=clean | {"HOME": str(home), "TRAINSHED_ENVS": str(ENVIRONMENTS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-4000:]}"
    return done.stdout
