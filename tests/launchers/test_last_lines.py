"""A failed launcher inside a command: the report leads with the failing rank's words (recorded outputs)."""

from __future__ import annotations

import pytest

from support import ROOT
from trainshed.runs.last_lines import last_lines

pytestmark = [pytest.mark.contracts, pytest.mark.field]

ERROR = "FileNotFoundError: [Errno 2] No such file or directory: '/data/labels.txt'"
LAUNCHERS = ["torchrun", "deepspeed", "paddle", "msrun", "horovodrun", "mpirun"]


def recorded(launcher: str) -> list[str]:
    """What `LAUNCHER train.py` wrote on one node with two ranks, of which rank 1 raised."""
    text = (ROOT / "tests" / "data" / "launchers" / f"{launcher}.txt").read_text()
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_last_line_is_the_failing_ranks(launcher: str) -> None:
    lines = recorded(launcher)
    assert not lines[-1].endswith(ERROR), "the launcher had the last word"
    words = last_lines(lines)
    assert words[-1].endswith(ERROR)
    assert any(line.endswith("Traceback (most recent call last):") for line in words)


@pytest.mark.parametrize("launcher", ["torchrun", "horovodrun"])
def test_lines_of_other_ranks_are_left_out_where_their_writer_is_known(launcher: str) -> None:
    lines = recorded(launcher)
    noise = {"torchrun": "[rank0]: still here", "horovodrun": "[0]<stdout>:still here"}[launcher]
    at = next(i for i, line in enumerate(lines) if line.endswith(ERROR))
    lines[at + 1 : at + 1] = [noise] * 30
    assert last_lines(lines)[-1].endswith(ERROR)


def test_without_a_launcher_the_last_lines_are_the_last() -> None:
    lines = [f"line {i}" for i in range(30)]
    assert last_lines(lines, 20) == tuple(lines[-20:])
    assert last_lines([]) == ()


def test_an_mpirun_that_tags_its_output_shows_the_failing_ranks_lines() -> None:
    lines = [
        "[1,1]<stderr>:Traceback (most recent call last):",
        f"[1,1]<stderr>:{ERROR}",
        "[1,0]<stdout>:step 7",
        "-" * 74,
        "mpirun detected that one or more processes exited with non-zero status, thus causing",
        "the job to be terminated. The first process to do so was:",
        "  Process name: [[44271,1],1]",
        "  Exit code:    1",
        "-" * 74,
    ]
    assert last_lines(lines) == tuple(lines[:2])
