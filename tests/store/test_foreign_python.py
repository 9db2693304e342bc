"""Scripts run `moxing` in Pythons that know nothing of Trainshed, as old as 3.7."""

import subprocess
import sys
from pathlib import Path

import pytest

import trainshed

pytestmark = [pytest.mark.store]

PACKAGE = Path(trainshed.__file__).parent
SITE = PACKAGE / "contracts/site/modelarts"


def run(code: str) -> str:
    """In a Python with nothing installed: -I would drop PYTHONPATH, so -S and an empty environment."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(SITE), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_moxing_imports_in_under_50_ms_and_brings_nothing_heavy() -> None:
    code = (
        "import time, sys; t = time.process_time(); import moxing as mox; t = time.process_time() - t;"
        "print(t); print('trainshed' in sys.modules, 'socket' in sys.modules, 'yaml' in sys.modules)"
    )
    best = min(float(run(code).split()[0]) for _ in range(3))
    assert best < 0.05
    assert run(code).split()[1:] == ["False", "False", "False"]


def test_every_import_form_in_the_wild_works() -> None:
    run(
        "import moxing as mox; from moxing.framework import file; from moxing.framework.file import file_io;"
        "import moxing.tensorflow as mt; import moxing.file; mt.cache(); mox.cache();"
        "assert mox.file is file is mt.file; assert file_io._LARGE_FILE_METHOD == 2;"
        "assert mox.file.copy_parallel; mox.file.set_auth(is_secure=False, unknown_keyword=1)"
    )


def test_the_store_is_reached_without_trainshed_on_the_path(tmp_path: Path) -> None:
    out = run(
        f"import moxing as mox, sys; mox.file.copy_parallel({str(SITE / 'moxing')!r}, {str(tmp_path / 'x')!r});"
        "print(sys.modules['trainshed'].__file__); print(any('site-packages' in p for p in sys.path))"
    )
    assert str(PACKAGE) in out
    assert "False" in out
    assert (tmp_path / "x/__init__.py").exists()
