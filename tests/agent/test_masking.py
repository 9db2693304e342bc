"""A secret never reaches a log, however its bytes arrive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainshed.agent.masking import open_log

pytestmark = [pytest.mark.foundation]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_secret_is_masked_across_writes_of_any_size(tmp_path: Path, size: int) -> None:
    text = b"a swordfish b swordswordfish c swordfis d swordfish"
    log = open_log(tmp_path / "log", ["swordfish"])
    with log.stream as stream:
        for at in range(0, len(text), size):
            stream.write(text[at : at + size])
            stream.flush()
            time.sleep(0.001)
    log.settle()
    assert (tmp_path / "log").read_bytes() == b"a *** b sword*** c swordfis d ***"


def test_a_job_without_secrets_writes_to_the_file_itself(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", ["abc"])
    assert log.copier is None, "three letters are no secret"
    log.stream.close()
