"""Logs are read whole, once and in order, whatever processes write into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.runs.logs import LogReader, tail

pytestmark = [pytest.mark.foundation]


def texts(reader: LogReader, final: bool = False) -> list[str]:
    return [line.text for line in reader.lines(final)]


def test_lines_are_given_once_and_partial_ones_when_they_end(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    reader = LogReader(0, path)
    assert texts(reader) == []
    path.write_text("one\ntw")
    assert texts(reader) == ["one"]
    path.write_text("one\ntwo\nthree")
    assert texts(reader) == ["two"]
    assert texts(reader, final=True) == ["three"]
    assert texts(reader, final=True) == []


def test_of_a_progress_bar_only_the_last_drawing_is_given(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"\r10%\r50%\r100%\ndone\r\n")
    assert texts(LogReader(0, path)) == ["100%", "done"]


def test_a_bar_being_redrawn_is_shown_at_most_once_a_second(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    reader = LogReader(0, path)
    shown = []
    for step in range(100):
        with path.open("ab") as stream:
            stream.write(b"\rstep %d" % step)
        shown += texts(reader)
    assert 1 <= len(shown) <= 2


def test_an_endless_line_is_given_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"x" * 1_000_000)
    pieces = texts(LogReader(0, path), final=True)
    assert len(pieces) > 1 and sum(map(len, pieces)) == 1_000_000


def test_bytes_that_are_no_text_do_not_stop_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"\xff\xfe\x00 ok\n")
    assert texts(LogReader(0, path))[0].endswith(" ok")


def test_tail_reads_the_last_lines_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_text("".join(f"line {i}\n" for i in range(100_000)) + "\n50%\r100%\nlast")
    assert tail(path, 3) == ("line 99999", "100%", "last")
    assert tail(tmp_path / "none.log") == ()
