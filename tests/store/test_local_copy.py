"""Copies between directories: what arrives, what is refused, and that nothing leaves the destination."""

import os
from pathlib import Path

import pytest
from storekit import MIB, contents, fill

from trainshed.errors import NotFoundError, UsageError
from trainshed.payload.modelarts.trainshed_store import checksum
from trainshed.payload.modelarts.trainshed_store.errors import StoreError
from trainshed.payload.modelarts.trainshed_store.local import Root
from trainshed.store import CopyError, cat, copy, list_tree, read_bytes, remove, write_bytes

pytestmark = [pytest.mark.store]


def test_a_tree_arrives_whole_with_empty_directories_times_and_exec_bits(tmp_path: Path) -> None:
    source = tmp_path / "a"
    fill(source / "x/one", 10)
    fill(source / "big", 20 * MIB + 5)
    (source / "empty/inner").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    for name in ("x/one", "big"):
        os.utime(source / name, (1_000_000_000.5, 1_000_000_000.5))
    summary = copy(str(source), str(tmp_path / "b"))
    assert (summary.files, summary.complete) == (3, True)
    assert contents(tmp_path / "b") == contents(source)
    assert os.access(tmp_path / "b/run.sh", os.X_OK)
    assert not os.access(tmp_path / "b/x/one", os.X_OK)
    assert {(tmp_path / "b" / name).stat().st_mtime for name in ("x/one", "big")} == {1_000_000_000.5}
    again = copy(str(source), str(tmp_path / "b"))
    assert (again.files, again.skipped) == (0, 3)


def test_a_file_goes_to_a_name_or_into_a_directory(tmp_path: Path) -> None:
    file = fill(tmp_path / "f", 100)
    copy(str(file), str(tmp_path / "new/name"))
    copy(str(file), str(tmp_path / "dir") + "/")
    assert (tmp_path / "new/name").read_bytes() == (tmp_path / "dir/f").read_bytes() == file.read_bytes()


def test_delete_removes_what_the_source_has_not_and_changes_kinds(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    fill(source / "keep", 5)
    fill(source / "was-dir", 5)
    fill(source / "was-file/inner", 5)
    fill(target / "stale/deep/er", 5)
    fill(target / "was-dir/x", 5)
    fill(target / "was-file", 5)
    summary = copy(str(source), str(target), delete=True)
    assert contents(target) == contents(source)
    assert summary.deleted == 3
    assert not (target / "stale").exists()


def test_without_delete_nothing_is_removed(tmp_path: Path) -> None:
    fill(tmp_path / "a/x", 5)
    fill(tmp_path / "b/y", 5)
    copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert set(contents(tmp_path / "b")) == {"x", "y"}


def test_links_in_the_source_are_read_inside_and_named_outside(tmp_path: Path) -> None:
    source = tmp_path / "a"
    fill(source / "real", 7)
    fill(tmp_path / "outside/secret", 7)
    (source / "inside").symlink_to("real")
    (source / "leaves").symlink_to(tmp_path / "outside")
    (source / "dangling").symlink_to("nothing")
    (source / "loop").symlink_to(source)
    summary = copy(str(source), str(tmp_path / "b"))
    assert set(contents(tmp_path / "b")) == {"real", "inside"}
    assert {p.name for p in summary.unrepresentable} == {"leaves", "dangling", "loop"}
    assert not summary.complete
    followed = copy(str(source), str(tmp_path / "c"), follow_links=True)
    assert (tmp_path / "c/leaves/secret").exists()
    assert {p.name for p in followed.unrepresentable} == {"dangling", "loop"}


def test_sockets_and_pipes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a/pipe")
    summary = copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [p.name for p in summary.unrepresentable] == ["pipe"]


def test_links_in_the_destination_lead_nowhere(tmp_path: Path) -> None:
    fill(tmp_path / "a/sub/file", 9)
    fill(tmp_path / "a/plain", 9)
    (tmp_path / "outside").mkdir()
    victim = fill(tmp_path / "victim", 3)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/sub").symlink_to(tmp_path / "outside")
    (tmp_path / "b/plain").symlink_to(victim)
    before = victim.read_bytes()
    with pytest.raises(CopyError, match="is a link"):
        copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert list((tmp_path / "outside").iterdir()) == []
    (tmp_path / "b/sub").unlink()
    copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert victim.read_bytes() == before
    assert not (tmp_path / "b/plain").is_symlink()


def test_a_missing_source_and_a_destination_inside_the_source_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(NotFoundError):
        copy(str(tmp_path / "none"), str(tmp_path / "b"))
    with pytest.raises(UsageError, match="inside"):
        copy(str(tmp_path / "a"), str(tmp_path / "a/b"))
    with pytest.raises(UsageError, match="--delete"):
        copy(str(fill(tmp_path / "f", 1)), str(tmp_path / "g"), delete=True)


def test_a_partial_file_keeps_only_parts_whose_bytes_are_intact(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    data = os.urandom(24)
    first = root.partial("x", 24, "v1")
    assert first.resume(8, checksum.md5) == {}
    for number in (0, 1):
        piece = memoryview(data)[number * 8 : number * 8 + 8]
        first.write(number * 8, piece)
        first.finished(number, checksum.md5(piece))
    first.close()
    damaged = next(p for p in tmp_path.iterdir() if "journal" not in p.name)
    with damaged.open("r+b") as file:
        file.seek(9)
        file.write(b"\0\0")
    second = root.partial("x", 24, "v1")
    assert set(second.resume(8, checksum.md5)) == {0}
    second.close()
    other = root.partial("x", 24, "v2")
    assert other.resume(8, checksum.md5) == {}
    other.discard()
    assert list(tmp_path.iterdir()) == []


def test_two_copiers_of_one_large_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    one, two = root.partial("x", 16, "v"), root.partial("x", 16, "v")
    one.resume(8, checksum.md5)
    two.resume(8, checksum.md5)
    one.write(0, memoryview(b"a" * 8))
    two.write(0, memoryview(b"a" * 8))
    two.write(8, memoryview(b"b" * 8))
    two.finish(0, None)
    assert (tmp_path / "x").read_bytes() == b"a" * 8 + b"b" * 8
    one.write(8, memoryview(b"b" * 8))
    one.finish(0, None)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"a" * 8 + b"b" * 8


def test_reading_writing_listing_and_removing_local_files(tmp_path: Path) -> None:
    write_bytes(str(tmp_path / "d/f"), b"data")
    assert read_bytes(f"file://{tmp_path}/d/f") == b"data"
    assert [e.name for e in list_tree(str(tmp_path))] == ["d/f"]
    with pytest.raises(UsageError, match="directory"):
        remove(str(tmp_path / "d"))
    assert remove(str(tmp_path / "d"), recursive=True) == 1
    with pytest.raises(NotFoundError):
        read_bytes(str(tmp_path / "d/f"))


def test_a_full_disk_is_one_clear_error_and_the_copy_resumes(tmp_path: Path) -> None:
    """A quota by RLIMIT_FSIZE stands for the full disk: the same refusal, by the same call."""
    import resource
    import signal

    source = fill(tmp_path / "a/big", 24 * MIB)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12 * MIB, limits[1]))
    try:
        with pytest.raises(CopyError) as caught:
            copy(str(source.parent), str(tmp_path / "b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.code == "disk-full"
    assert not (tmp_path / "b/big").exists()
    copy(str(source.parent), str(tmp_path / "b"))
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def test_copiers_with_the_same_process_number_do_not_meet(tmp_path: Path) -> None:
    """Nodes count their processes from one, so two of them may have the same number."""
    import os
    from unittest import mock

    from trainshed.payload.modelarts.trainshed_store.local import _unique

    with mock.patch.object(os, "getpid", return_value=7):
        assert len({_unique() for _ in range(1000)}) == 1000


def test_delete_spares_what_of_the_source_could_not_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    for root in (source, target):
        fill(root / "sub/deep/x", 5)
    fill(target / "link/x", 5)
    fill(target / "stale", 5)
    (source / "link").symlink_to("/etc")
    closed = str(source / "sub")
    look = os.scandir

    def scandir(path: str) -> object:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return look(path)

    monkeypatch.setattr("trainshed.payload.modelarts.trainshed_store.tree.os.scandir", scandir)
    summary = copy(str(source), str(target), delete=True)
    assert {problem.name for problem in summary.unrepresentable} == {"sub", "link"}
    assert set(contents(target)) == {"sub/deep/x", "link/x"} and summary.deleted == 1
    closed = str(source)
    assert copy(str(source), str(target), delete=True).deleted == 0


def test_delete_is_refused_where_it_would_remove_the_source(tmp_path: Path) -> None:
    fill(tmp_path / "a/b/x", 5)
    fill(tmp_path / "a/y", 5)
    with pytest.raises(UsageError, match="--delete would remove it"):
        copy(str(tmp_path / "a/b"), str(tmp_path / "a"), delete=True)
    assert set(contents(tmp_path / "a")) == {"b/x", "y"}
    assert copy(str(tmp_path / "a/b"), str(tmp_path / "a")).files == 1


def test_a_directory_is_no_file_to_show(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a file"):
        list(cat(str(tmp_path)))
