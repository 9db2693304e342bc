"""Lets tests of this folder import `packages`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    for name in ("TRAINSHED_STORE_PROFILE", "TRAINSHED_ENGINE", "MODELARTS_VERSION", "SINGLESERVER_MODE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"
