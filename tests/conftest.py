"""Fixtures for all tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import Shed


@pytest.fixture
def shed(tmp_path: Path) -> Shed:
    """A Trainshed home of the test's own."""
    home = tmp_path / "home"
    home.mkdir()
    return Shed(home)


@pytest.fixture(scope="session")
def image() -> str:
    """A tiny image made of Debian's static busybox; the test is skipped, with the command, without podman."""
    tool = shutil.which("podman")
    if tool is None or not Path("/bin/busybox").exists():
        pytest.skip("apt-get install podman busybox-static")
    name = "localhost/trainshed-busybox:1"
    if subprocess.run([tool, "image", "exists", name]).returncode != 0:
        script = (
            "d=$(mktemp -d) && mkdir -p $d/bin $d/etc $d/tmp && cp /bin/busybox $d/bin/ && "
            "printf '#!/bin/busybox sh\\nexec /bin/busybox sh \"$@\"\\n' > $d/bin/bash && chmod +x $d/bin/bash && "
            "for n in sh cat hostname sleep env ls echo; do ln -s busybox $d/bin/$n; done && "
            f"tar -C $d -c . | {tool} import - {name} && rm -r $d"
        )
        subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    return name


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why a test had to be tried again: what fails now and then must not pass unseen."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}", sep="-")
        terminalreporter.write_line(report.longreprtext[-3000:])
