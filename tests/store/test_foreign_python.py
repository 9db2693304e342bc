"""Scripts run `moxing` in Pythons that know nothing of Trainshed, as old as 3.7."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from storekit import contents, fill

import trainshed

pytestmark = [pytest.mark.store, pytest.mark.core]

PACKAGE = Path(trainshed.__file__).parent
SITE = PACKAGE / "payload/modelarts"


def run(code: str, site: Path = SITE) -> str:
    """In a Python with nothing installed: -I would drop PYTHONPATH, so -S and an empty environment."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_moxing_brings_nothing_heavy() -> None:
    code = (
        "import sys, moxing; print([n for n in ('trainshed', 'socket', 'ssl', 'yaml') if n in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_every_import_form_in_the_wild_works() -> None:
    run(
        "import moxing as mox; from moxing.framework import file; from moxing.framework.file import file_io;"
        "import moxing.tensorflow as mt; import moxing.file; mt.cache(); mox.cache();"
        "assert mox.file is file is mt.file; assert file_io._LARGE_FILE_METHOD == 2;"
        "assert mox.file.copy_parallel; mox.file.set_auth(is_secure=False, unknown_keyword=1)"
    )


def test_the_payload_needs_nothing_of_an_installed_trainshed(tmp_path: Path) -> None:
    """The folder alone, copied to a machine or an image without Trainshed, does."""
    alone = tmp_path / "alone"
    shutil.copytree(SITE, alone, ignore=shutil.ignore_patterns("__pycache__"))
    fill(tmp_path / "data/x", 10)
    code = (
        f"import moxing as mox, sys; mox.file.copy_parallel({str(tmp_path / 'data')!r}, {str(tmp_path / 'y')!r});"
        "print('trainshed' in sys.modules)"
    )
    assert run(code, alone).strip() == "False"
    assert contents(tmp_path / "y") == contents(tmp_path / "data")


def test_a_trainshed_of_the_jobs_own_does_not_disturb_it(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/trainshed.py").write_text("raise ImportError('another Trainshed')")
    fill(tmp_path / "data/x", 10)
    code = f"import moxing as mox; mox.file.copy({str(tmp_path / 'data/x')!r}, {str(tmp_path / 'y')!r})"
    run(f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); {code}")
    assert (tmp_path / "y").exists()


def test_without_keys_the_remedy_is_named() -> None:
    code = """
import moxing as mox
try: mox.file.exists('obs://bucket/x')
except Exception as error: print(error)
"""
    assert "no keys for obs:// in the environment" in run(code)
