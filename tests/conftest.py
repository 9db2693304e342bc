"""Fixtures for all tests."""

from __future__ import annotations

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
