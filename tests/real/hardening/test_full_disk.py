"""A disk that a job fills up: the run ends, and its reason says so."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import made_run, processes_of, until
from trainshed import Client, files
from trainshed.engines.cluster.nodes import explained, record_end
from trainshed.runs.events import AttemptStarted
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import summarise

pytestmark = [pytest.mark.hardening, pytest.mark.real]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A home on a disk of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root: run the tests as root")
    home = tmp_path / "small"
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(home)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"mount: {mounted.stderr.decode()}: run the tests where root may mount")
    try:
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.parametrize(
    "command",
    ["head -c 50000000 /dev/zero; exit 3", 'head -c 2500000 /dev/zero > "$TRAINSHED_OUTPUT_DIR/big"'],
)
def test_the_reason_says_that_the_disk_is_full(small: Path, command: str) -> None:
    client = Client(small)
    job = {"name": "fill", "command": command, "timeout": 120, "outputs": [{"name": "out"}]}
    run = client.submit(job, options={"isolation": "plain"})
    ended = run.wait(200)
    assert ended.state is RunState.FAILED, ended
    assert "is full" in ended.reason or "No space left" in ended.reason, ended.reason
    until(lambda: not processes_of(run.id), 30, lambda: f"the end of {processes_of(run.id)}")
    assert run.refresh().state is RunState.FAILED


def test_an_end_is_recorded_on_a_full_disk_with_its_reason(small: Path) -> None:
    run = made_run(small)
    run.writer("driver-1").append(AttemptStarted(1))
    run.reserve()
    with (small / "all").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(b"0" * 4096):
            pass
    said_nothing = Outcome.of(Failure(Cause.ENGINE, "the agents ended without recording why"))
    assert record_end(run, explained(run, said_nothing))
    ended = summarise(run)
    assert ended.state is RunState.FAILED and "is full" in ended.reason


def test_a_full_disk_is_told_from_one_that_is_not(small: Path, tmp_path: Path) -> None:
    assert not files.is_full(small) and not files.is_full(tmp_path)
    with pytest.raises(OSError, match="No space"):
        (small / "all").write_bytes(b"0" * (8 << 20))
    assert files.is_full(small) and not files.is_full(tmp_path)
