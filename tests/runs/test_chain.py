"""A chain holds up to its last whole line, and whatever was done to it is told."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from trainshed.runs import chain
from trainshed.runs.chain import ChainError, ChainWriter, GrowingFile, Head

pytestmark = [pytest.mark.foundation, pytest.mark.hardening]
HEAD = Head(3, hashlib.sha256(b"abc").hexdigest())


def made(path: Path, records: int = 5) -> bytes:
    writer = ChainWriter(path, "run-1", "0" * 32, 1000.0)
    for number in range(records):
        writer.append({"node-0/metrics.jsonl": HEAD}, 1001.0 + number)
    writer.close({"events/coordinator-1.jsonl": HEAD}, 1010.0)
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = chain.read(made(tmp_path / "chain"))
    assert (found.run, found.nonce, len(found.records), found.is_closed) == ("run-1", "0" * 32, 7, True)
    assert found.records[1].heads == {"node-0/metrics.jsonl": HEAD}
    assert [r.seq for r in found.records] == list(range(7))


def test_a_kill_at_any_byte_leaves_a_chain_that_holds_up_to_its_last_record(tmp_path: Path) -> None:
    data = made(tmp_path / "chain")
    whole = chain.read(data).records
    first = data.index(b"\n") + 1
    for length in range(len(data)):
        if length < first:
            with pytest.raises(ChainError):
                chain.read(data[:length])
            continue
        found = chain.read(data[:length])
        count = data[:length].count(b"\n")
        assert found.records == whole[:count] and found.is_closed == (count == len(whole))


def test_no_byte_of_a_closed_chain_can_be_changed(tmp_path: Path) -> None:
    data = made(tmp_path / "chain", 2)
    for at in range(0, len(data) - 1, 7):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(ChainError):
            chain.read(changed)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b'{"v":1}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\n" * 3,
        b"\n" * 30_000,
    ],
)
def test_garbage_is_no_chain(data: bytes) -> None:
    with pytest.raises(ChainError):
        chain.read(data)


@pytest.mark.parametrize("at", [1e300, -1e300, float("inf"), float("nan")])
def test_a_time_that_nothing_can_be_calculated_with_is_refused(tmp_path: Path, at: float) -> None:
    ChainWriter(tmp_path / "chain", "run-1", "", at)
    with pytest.raises(ChainError, match="record 0"):
        chain.read((tmp_path / "chain").read_bytes())


def test_nobody_goes_on_with_a_chain_that_is_there(tmp_path: Path) -> None:
    made(tmp_path / "chain")
    with pytest.raises(FileExistsError):
        ChainWriter(tmp_path / "chain", "run-2", "", 0.0)


def test_a_chain_stays_small_however_long_and_large_a_run_is() -> None:
    for size in (500, 50_000, 1_000_000):
        elapsed = written = records = 0.0
        while elapsed < 7 * 86400:
            written, records = written + size, records + 1
            elapsed += chain.pause(size, elapsed)
        assert records < chain.MOST_RECORDS
        assert written < 7 * 86400 * 2000 + size
    assert chain.pause(1000, 60.0) == chain.PERIOD


def test_a_growing_file_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    path, growing = tmp_path / "file", GrowingFile()
    assert growing.read_on(path) is None
    path.write_bytes(b"one\n")
    assert growing.read_on(path) == Head(4, hashlib.sha256(b"one\n").hexdigest())
    assert growing.read_on(path) is None
    with path.open("ab") as stream:
        stream.write(b"two\n")
    moved = path.rename(tmp_path / "moved")
    assert growing.read_on(moved) == Head(8, hashlib.sha256(b"one\ntwo\n").hexdigest())


def test_what_a_job_laid_in_the_way_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(__file__)
    (tmp_path / "folder").mkdir()
    assert all(GrowingFile().read_on(tmp_path / name) is None for name in ("pipe", "link", "folder"))
