"""Logs are read whole, once and in order, whatever processes write into them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainshed.runs.directory import RunDirectory
from trainshed.runs.logs import LogReader, follow, log_files, tail
from trainshed.runs.logtimes import LogTimes

pytestmark = [pytest.mark.foundation, pytest.mark.core]


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


def test_a_log_set_aside_is_read_to_its_end_and_the_next_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    reader = LogReader(0, path)
    path.write_text("first, and long\n")
    assert texts(reader) == ["first, and long"]
    with path.open("a") as stream:
        stream.write("its last words")
    path.rename(tmp_path / "rank-0.attempt-1.log")
    path.write_text("second\nand longer than the first attempt was\n")
    assert texts(reader) == ["its last words", "second", "and longer than the first attempt was"]
    path.rename(tmp_path / "rank-0.attempt-2.log")
    assert texts(reader) == []
    path.write_text("third\n")
    assert texts(reader, final=True) == ["third"]
    assert texts(LogReader(0, path)) == ["third"], "who comes later is given the latest attempt"


def test_a_log_that_shrinks_is_read_anew_and_one_copied_anew_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    reader = LogReader(0, path)
    path.write_text("one\ntwo\n")
    assert texts(reader) == ["one", "two"]
    (tmp_path / "copy").write_text("one\ntwo\nthree\n")
    (tmp_path / "copy").rename(path)
    assert texts(reader) == ["three"]
    path.write_text("new\n")
    assert texts(reader) == ["new"]


def test_the_logs_of_one_node_are_found_without_a_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path)
    for index in range(2):
        run.node(index).mkdir()
        run.log(index, f"rank-{index}").touch()
    monkeypatch.setattr(RunDirectory, "node_indexes", lambda _: pytest.fail("all were listed"))
    assert log_files(run, node=1) == [(1, run.log(1, "rank-1"))]
    assert log_files(run, node=7) == []


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


def stamped(folder: Path, process: str, *lines: tuple[float, str]) -> None:
    """A log whose lines were seen at these times."""
    size, times = 0, []
    with (folder / f"{process}.log").open("wb") as stream:
        for moment, text in lines:
            size += stream.write(f"{text}\n".encode())
            times.append(f"{moment} {size}\n")
    (folder / f"{process}.times").write_text("".join(times))


@pytest.mark.field
def test_logs_are_merged_by_the_time_their_lines_were_seen(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.node(0).mkdir()
    run.node(1).mkdir()
    stamped(run.node(0), "rank-0", (1.0, "a"), (4.0, "d"), (6.5, "f"))
    stamped(run.node(1), "rank-1", (2.0, "b"), (3.0, "c"), (5.0, "e"))
    lines = list(follow(run, lambda: True))
    assert [line.text for line in lines] == list("abcdef")
    assert [line.time for line in lines] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]


@pytest.mark.field
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 70_000])
def test_the_last_lines_of_a_log_are_found(tmp_path: Path, count: int, end: str) -> None:
    path = tmp_path / "rank-0.log"
    whole = [f"line {i}" for i in range(60_000)]
    path.write_text("\n".join(whole) + end)
    assert texts(LogReader(0, path, last=count), final=True) == (whole[-count:] if count else [])


@pytest.mark.field
def test_what_an_agent_saw_of_a_log_dates_its_lines(tmp_path: Path) -> None:
    path, times = tmp_path / "rank-0.log", LogTimes()
    times.watch(path)
    times.sample(final=True)
    path.write_text("one\n")
    before = time.time()
    times.sample(final=True)
    after = time.time()
    with path.open("a") as stream:
        stream.write("two\n")
    os.utime(path, (99.0, 99.0))
    first, second = LogReader(0, path).lines()
    assert before - 0.01 <= first.time <= after + 0.01, "to a hundredth of a second"
    assert second.time == 99.0, "not yet seen: the last write"
