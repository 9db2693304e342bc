"""Outputs that cannot be saved: known before the job starts, and never without the command that saves them."""

import shlex
from pathlib import Path

import pytest

from trainshed.access import StoreAccess
from trainshed.agent import staging
from trainshed.plan.model import Transfer

pytestmark = [pytest.mark.foundation, pytest.mark.field]


@pytest.fixture
def blocked(tmp_path: Path) -> Transfer:
    """An output whose target is below a file."""
    (tmp_path / "file").touch()
    (tmp_path / "out put").mkdir()
    (tmp_path / "out put" / "weights").write_text("dear")
    return Transfer("model", str(tmp_path / "out put"), str(tmp_path / "file" / "below"))


def test_a_target_that_cannot_be_written_is_found_before_the_job_starts(
    blocked: Transfer, tmp_path: Path
) -> None:
    with pytest.raises(staging.StagingError, match=r"model cannot be saved to .*not a directory"):
        staging.check_target(blocked, StoreAccess(tmp_path))


def test_what_could_not_be_saved_is_named_with_the_command_that_saves_it(
    blocked: Transfer, tmp_path: Path
) -> None:
    with pytest.raises(staging.StagingError) as caught:
        staging.save(blocked, tmp_path / "unused", StoreAccess(tmp_path))
    command = caught.value.message.partition("what is left is saved by: ")[2]
    assert shlex.split(command) == ["trainshed", "cp", f"{blocked.source}/", f"{blocked.target}/"]
