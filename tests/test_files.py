"""Locks that only their holders hold, and files that are written whole and read without waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainshed import files
from trainshed.errors import TrainshedError

pytestmark = [pytest.mark.foundation, pytest.mark.core]


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not files.is_held(path) and not path.exists(), "asking makes no file"
    held = files.hold(path)
    assert held is not None and files.is_held(path) and files.hold(path) is None
    os.close(held)
    assert not files.is_held(path)
    again = files.hold(path)
    assert again is not None
    os.close(again)


def test_a_lock_goes_on_with_whoever_inherits_it_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = files.hold(path)
    assert held is not None
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[held])
    os.close(held)
    assert files.is_held(path) and files.hold(path) is None
    child.kill()
    child.communicate()
    assert not files.is_held(path)


def test_whoever_asks_is_never_taken_for_a_holder(tmp_path: Path) -> None:
    """A reader that looks at a lock must not keep a driver or an agent from taking it."""
    path = tmp_path / "lock"
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            files.is_held(path)

    readers = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(2000):
            held = files.hold(path)
            assert held is not None
            os.close(held)
    finally:
        over.set()
        for reader in readers:
            reader.join(30)


def test_waiting_for_a_lock_has_an_end_and_says_for_what(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = files.hold(path)
    assert held is not None
    with pytest.raises(TrainshedError, match="the list is locked by another process") as caught:
        files.locked(path, 0.0, "the list").__enter__()
    assert caught.value.code == "busy"
    os.close(held)
    with files.locked(path, 0.0, "the list"):
        assert files.is_held(path)


def test_a_pipe_is_neither_read_nor_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        files.read_regular(tmp_path / "pipe")
    assert not files.is_held(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        files.read_regular(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        files.read_regular(tmp_path)


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(OSError, match="too large"):
        files.read_regular(path)
    path.write_bytes(b"small")
    assert files.read_regular(path, 5) == b"small"


def test_a_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_atomic(path, "one", 0o600)
    files.write_atomic(path, b"two", 0o640)
    assert path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(UnicodeEncodeError):
        files.write_atomic(path, "\ud800")
    assert path.read_bytes() == b"two" and [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"one\n")
    real = os.fstat

    def measured(handle: int) -> os.stat_result:
        found = real(handle)
        with path.open("ab") as stream:
            stream.write(b"two\n" * 500_000)
        return found

    monkeypatch.setattr(files.os, "fstat", measured)
    assert files.read_regular(path) == b"one\n" + b"two\n" * 500_000
    monkeypatch.undo()
    with pytest.raises(OSError, match="too large"):
        files.read_regular(path, 10)
