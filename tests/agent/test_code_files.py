"""What of a code folder goes to the nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import Shed
from trainshed.codefiles import code_files
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.foundation, pytest.mark.field]


def tree(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text(name)
    return folder


def test_repositories_environments_and_caches_stay_behind(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "src/a.py", "src/__pycache__/a.pyc", ".git/HEAD", ".venv/bin/python", "out/")
    tree(tmp_path, "myenv/pyvenv.cfg", "myenv/lib/x.py", "src/data.bin")
    found = code_files(tmp_path)
    assert set(found.names) == {"train.py", "src/a.py", "src/data.bin"}
    assert found.empty == ("out",) and not found.complete


def test_an_ignore_file_adds_patterns_and_keeps_what_it_says(tmp_path: Path) -> None:
    tree(
        tmp_path, "train.py", "a.log", "src/b.log", "keep.log", "data/x", "src/data/y", ".git/HEAD", "build/z"
    )
    (tmp_path / ".trainshedignore").write_text("# comment\n*.log\n!keep.log\n/data\nbuild/\n!.git/\n")
    assert set(code_files(tmp_path).names) == {
        ".trainshedignore", "train.py", "keep.log", "src/data/y", ".git/HEAD"
    }  # fmt: skip


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "sub/x")
    (tmp_path / "sub/up").symlink_to("..")
    assert set(code_files(tmp_path).names) == {"train.py", "sub/x", "sub/up"}


def test_inputs_below_the_code_are_known(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "data/x", "more/data/y")
    channels = [
        {"name": "a", "source": "data"},
        {"name": "b", "source": "more/data"},
        {"name": "c", "source": ".."},
    ]
    (tmp_path / "job.yaml").write_text(
        json.dumps({"name": "a", "code": ".", "entry": "train.py", "inputs": channels})
    )
    job = load_job(tmp_path)
    assert job.inputs_in_code == ("data", "more/data")
    assert "data/x" not in code_files(tmp_path, job.inputs_in_code).names


@pytest.mark.real
def test_a_run_gets_its_code_without_them(shed: Shed) -> None:
    script = "import os; print(sorted(n for n in os.listdir('.') if n != 'job.yaml'), os.listdir(os.environ['TRAINSHED_CHANNEL_DATA']))"
    job = shed.job("a", {"t.py": script}, entry="t.py", inputs=[{"name": "data", "source": "data"}])
    tree(job.parent, ".git/HEAD", "data/x", "empty/", "src/a.py")
    done = shed.cli("run", job)
    assert done.returncode == 0, done.stderr
    assert "['empty', 'src', 't.py'] ['x']" in done.stdout
