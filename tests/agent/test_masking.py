"""A secret never reaches a log, however its bytes arrive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainshed.agent.masking import open_log

pytestmark = [pytest.mark.foundation]


def written(path: Path, secrets: list[str], text: bytes, size: int) -> bytes:
    """What is in the log of a process that writes `size` bytes at a time."""
    log = open_log(path, secrets)
    with log.stream as stream:
        for at in range(0, len(text), size):
            stream.write(text[at : at + size])
            stream.flush()
            time.sleep(0.001)
    log.settle()
    return path.read_bytes()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_secret_is_masked_across_writes_of_any_size(tmp_path: Path, size: int) -> None:
    text = b"a swordfish b swordswordfish c swordfis d swordfish"
    found = written(tmp_path / "log", ["swordfish"], text, size)
    assert found == b"a *** b sword*** c swordfis d ***"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_of_secrets_that_begin_alike_the_longer_is_hidden_whole(tmp_path: Path, size: int) -> None:
    text = b"a swordfish b sword c swordfi d xsword e swordfisword"
    secrets = ["sword", "swordfish", "xsword-and-more"]
    assert written(tmp_path / "log", secrets, text, size) == b"a *** b *** c ***fi d x*** e ***fi***"


def test_a_secret_that_ends_as_it_begins_is_masked_whole(tmp_path: Path) -> None:
    assert written(tmp_path / "log", ["abca"], b"1 abca 2 abcabca", 1) == b"1 *** 2 ***bca"


def test_a_job_without_secrets_writes_to_the_file_itself(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", ["abc"])
    assert log.copier is None, "three letters are no secret"
    log.stream.close()
