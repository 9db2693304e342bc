"""Lets tests of this folder import `served` and `made`, and gives them a good result."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "bench")]


@pytest.fixture(scope="session")
def good_result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import made

    return made.made_result(tmp_path_factory.mktemp("good"))


@pytest.fixture
def result(good_result: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(good_result, tmp_path / "result"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINSHED_TESTER_TOKEN", raising=False)
    return tmp_path / "home"


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """The folder of the organiser's copy of the made workload."""
    import made
    import yaml

    (tmp_path / "workload").mkdir()
    fields = made.made_workload().model_dump(mode="json")
    (tmp_path / "workload" / "workload.yaml").write_text(yaml.safe_dump(fields))
    return tmp_path / "workload"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[object]:
    from served import serving

    with serving(tmp_path / "tester") as running:
        yield running
