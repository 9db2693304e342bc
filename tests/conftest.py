"""Fixtures for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from support import Shed, busybox_image


@pytest.fixture
def shed(tmp_path: Path) -> Shed:
    """A Trainshed home of the test's own."""
    home = tmp_path / "home"
    home.mkdir()
    return Shed(home)


@pytest.fixture(scope="session")
def image() -> str:
    """A tiny image made of Debian's static busybox; the test is skipped, with the command, without podman."""
    if shutil.which("podman") is None or not Path("/bin/busybox").exists():
        pytest.skip("apt-get install podman busybox-static")
    return busybox_image()


MAY_BE_SKIPPED_IN_CI = ("there is no python3.7", "there is no python3.8", "there is no python3.9")
"""What a machine of CI cannot have; any other skip there is a failure."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in MAY_BE_SKIPPED_IN_CI):
            report.outcome, report.longrepr = "failed", f"skipped in CI: {reason}"
    return report
