"""Copies to and from a real store: every direction, resumption, verification, and what is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from storekit import MIB, contents, fill

from trainshed.errors import NotFoundError
from trainshed.payload.modelarts.trainshed_store.local import Root
from trainshed.payload.modelarts.trainshed_store.local_side import LocalReading, LocalWriter, LocalWriting
from trainshed.payload.modelarts.trainshed_store.remote_side import RemoteReader, RemoteWriter
from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.payload.modelarts.trainshed_store.transfer import PIECE
from trainshed.payload.modelarts.trainshed_store.tree import Entry
from trainshed.store import (
    Credentials,
    cat,
    copy,
    disk_usage,
    exists,
    list_tree,
    read_bytes,
    remove,
    write_bytes,
)

pytestmark = [pytest.mark.store, pytest.mark.real]


def make_tree(root: Path) -> Path:
    for number in range(30):
        fill(root / f"d{number % 3}/f{number}", number * 37)
    fill(root / "middle", 3 * MIB)
    fill(root / "large", 20 * MIB + 123)
    (root / "empty/inner").mkdir(parents=True)
    (root / "sp ace+%41&<>").write_text("odd")
    (root / "文件").write_text("unicode")
    (root / "run.sh").write_text("x")
    (root / "run.sh").chmod(0o755)
    return root


def test_a_tree_goes_up_across_and_down_unchanged(tmp_path: Path, store: Credentials, bucket: str) -> None:
    source = make_tree(tmp_path / "a")
    up = copy(str(source), f"obs://{bucket}/tree", credentials=store)
    across = copy(f"obs://{bucket}/tree/", f"s3://{bucket}/second/", credentials=store)
    down = copy(f"s3://{bucket}/second", str(tmp_path / "b"), credentials=store)
    assert up.files == across.files == down.files == 35
    assert up.bytes == down.bytes
    assert up.complete and down.complete and not down.unverified
    assert contents(tmp_path / "b") == contents(source)
    assert os.access(tmp_path / "b/run.sh", os.X_OK)
    assert disk_usage(f"s3://{bucket}/tree", credentials=store) == (35, up.bytes)


def test_a_second_copy_finds_nothing_to_do_in_either_direction(
    tmp_path: Path, store: Credentials, bucket: str
) -> None:
    source = make_tree(tmp_path / "a")
    copy(str(source), f"s3://{bucket}/t", credentials=store)
    copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=store)
    again_up = copy(str(source), f"s3://{bucket}/t", credentials=store)
    again_down = copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=store)
    assert (again_up.files, again_down.files) == (0, 0)
    assert again_up.skipped == again_down.skipped == 35


def test_a_change_of_same_size_and_older_time_is_noticed(
    tmp_path: Path, store: Credentials, bucket: str
) -> None:
    file = tmp_path / "a/f"
    fill(file, 1000, seed=1)
    copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store)
    fill(file, 1000, seed=2)
    os.utime(file, (1, 1))
    assert copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store).files == 1
    assert read_bytes(f"s3://{bucket}/t/f", credentials=store) == file.read_bytes()


def test_a_checkpoint_renamed_into_place_is_noticed(tmp_path: Path, store: Credentials, bucket: str) -> None:
    """Same name, same size, older time: only the rename itself tells."""
    new = fill(tmp_path / "tmp-checkpoint", 200_000, seed=2)
    os.utime(new, (1_000_000_000, 1_000_000_000))
    old = fill(tmp_path / "a/model.ckpt", 200_000, seed=1)
    copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store)
    new.rename(old)
    assert copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store).files == 1
    assert read_bytes(f"s3://{bucket}/t/model.ckpt", credentials=store) == old.read_bytes()


def test_a_missing_source_never_empties_the_destination(
    tmp_path: Path, store: Credentials, bucket: str
) -> None:
    fill(tmp_path / "precious/file", 5)
    with pytest.raises(NotFoundError):
        copy(f"s3://{bucket}/typo/", str(tmp_path / "precious"), credentials=store, delete=True)
    assert (tmp_path / "precious/file").exists()


def test_delete_removes_stale_objects_and_markers_only(
    tmp_path: Path, store: Credentials, bucket: str
) -> None:
    write_bytes(f"s3://{bucket}/t/stale/x", b"1", credentials=store)
    write_bytes(f"s3://{bucket}/tother", b"1", credentials=store)
    fill(tmp_path / "a/keep", 5)
    (tmp_path / "a/empty").mkdir()
    summary = copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store, delete=True)
    assert summary.deleted == 1
    assert {(e.name, e.is_directory) for e in list_tree(f"s3://{bucket}/t", credentials=store)} == {
        ("keep", False),
        ("empty", True),
    }
    assert exists(f"s3://{bucket}/tother", credentials=store)
    (tmp_path / "a/empty").rmdir()
    copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store, delete=True)
    assert [e.name for e in list_tree(f"s3://{bucket}/t", credentials=store)] == ["keep"]
    (tmp_path / "b/gone").mkdir(parents=True)
    fill(tmp_path / "b/gone/y", 3)
    copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=store, delete=True)
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def test_an_interrupted_upload_continues_with_the_parts_that_are_there(
    tmp_path: Path, store: Credentials, bucket: str, client: S3Client
) -> None:
    file = fill(tmp_path / "big", 30 * MIB)
    writing = RemoteWriter(client, bucket, "").begin("big", LocalReading(str(file)))
    data = memoryview(file.read_bytes())
    for number in (0, 2):
        writing.write(number, data[number * writing.part : (number + 1) * writing.part])
    assert not exists(f"s3://{bucket}/big", credentials=store)
    resumed = RemoteWriter(client, bucket, "").begin("big", LocalReading(str(file)))
    assert set(resumed.have) == {0, 2}
    copy(str(file), f"s3://{bucket}/big", credentials=store)
    assert b"".join(cat(f"s3://{bucket}/big", credentials=store)) == file.read_bytes()
    assert client.find_multipart(bucket, "big") == ""


@pytest.mark.parametrize(("is_local", "part"), [(True, 32 * MIB), (False, 8 * MIB)])
def test_an_interrupted_download_continues_with_the_parts_that_are_there(
    tmp_path: Path, store: Credentials, bucket: str, client: S3Client, is_local: bool, part: int
) -> None:
    file = fill(tmp_path / "big", 3 * part - 1)
    copy(str(file), f"s3://{bucket}/big", credentials=store)
    client.is_local = is_local
    reader = RemoteReader(client, bucket, "")
    root = Root(str(tmp_path / "to"))

    def begun() -> LocalWriting:
        return LocalWriter(root).begin("big", reader.open(Entry("big", file.stat().st_size)))

    first = begun()
    assert (first.part, first.have) == (part, {})
    first.fetch(2, reader.open(Entry("big", file.stat().st_size)), memoryview(bytearray(PIECE)))
    first.suspend()
    again = begun()
    assert set(again.have) == {2}
    again.suspend()
    (partial,) = (p for p in (tmp_path / "to").iterdir() if "journal" not in p.name)
    assert partial.read_bytes()[2 * part :] == file.read_bytes()[2 * part :]
    if is_local:
        copy(f"s3://{bucket}/big", str(tmp_path / "to/big"), credentials=store)
        assert (tmp_path / "to/big").read_bytes() == file.read_bytes()
        assert [p.name for p in (tmp_path / "to").iterdir()] == ["big"]
    root.close()


def test_parts_of_another_content_are_not_taken_over(
    tmp_path: Path, store: Credentials, bucket: str, client: S3Client
) -> None:
    old = fill(tmp_path / "old", 20 * MIB, seed=1)
    writing = RemoteWriter(client, bucket, "").begin("big", LocalReading(str(old)))
    writing.write(0, memoryview(old.read_bytes())[: writing.part])
    new = fill(tmp_path / "new", 20 * MIB, seed=2)
    copy(str(new), f"s3://{bucket}/big", credentials=store)
    assert b"".join(cat(f"s3://{bucket}/big", credentials=store)) == new.read_bytes()


@pytest.mark.parametrize("part", [0, 5 * MIB, 8 * MIB])
def test_large_objects_of_any_maker_are_verified(
    tmp_path: Path, store: Credentials, bucket: str, client: S3Client, part: int
) -> None:
    """One PUT (plain MD5), foreign part size, our part size: all are checked on the way down."""
    data = fill(tmp_path / "x", 18 * MIB).read_bytes()
    if part:
        upload = client.start_multipart(bucket, "x")
        starts = range(0, len(data), part)
        etags = [
            client.put(bucket, "x", data[s : s + part], query={"partNumber": str(i + 1), "uploadId": upload})
            for i, s in enumerate(starts)
        ]
        client.finish_multipart(bucket, "x", upload, etags)
    else:
        client.put(bucket, "x", data)
    summary = copy(f"s3://{bucket}/x", str(tmp_path / "down"), credentials=store)
    assert not summary.unverified
    assert (tmp_path / "down").read_bytes() == data


def test_a_file_that_will_not_hold_still_is_named_not_torn(
    tmp_path: Path, store: Credentials, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a"
    fill(source / "calm", 100)
    live = fill(source / "live", 9 * MIB)
    read = LocalReading.read

    def read_and_grow(reading: LocalReading, start: int, into: memoryview) -> memoryview:
        data = read(reading, start, into)
        if reading.size > MIB:
            with live.open("ab") as file:
                file.write(b"more")
        return data

    with monkeypatch.context() as patch:
        patch.setattr(LocalReading, "read", read_and_grow)
        summary = copy(str(source), f"s3://{bucket}/t", credentials=store)
    assert [p.name for p in summary.unstable] == ["live"]
    assert [e.name for e in list_tree(f"s3://{bucket}/t", credentials=store)] == ["calm"]
    assert copy(str(source), f"s3://{bucket}/t", credentials=store).files == 1


def test_names_a_store_cannot_hold_are_named(tmp_path: Path, store: Credentials, bucket: str) -> None:
    fill(tmp_path / "a/ok", 1)
    Path(os.fsdecode(bytes(tmp_path / "a") + b"/bad\xff")).write_text("x")
    deep = tmp_path / "a" / "/".join(["d" * 200] * 6)
    deep.mkdir(parents=True)
    (deep / "f").write_text("x")
    summary = copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store)
    assert {p.reason for p in summary.unrepresentable} == {
        "is not valid UTF-8",
        "gives a key longer than 1024 bytes",
    }
    assert summary.files == 1


def test_key_and_prefix_of_one_name_live_together(store: Credentials, bucket: str, tmp_path: Path) -> None:
    write_bytes(f"s3://{bucket}/x", b"object", credentials=store)
    write_bytes(f"s3://{bucket}/x/y", b"child", credentials=store)
    copy(f"s3://{bucket}/x", str(tmp_path / "one"), credentials=store)
    copy(f"s3://{bucket}/x/", str(tmp_path / "tree"), credentials=store)
    assert (tmp_path / "one").read_bytes() == b"object"
    assert contents(tmp_path / "tree").keys() == {"y"}
    assert remove(f"s3://{bucket}/x", credentials=store) == 1
    assert exists(f"s3://{bucket}/x/y", credentials=store)


def test_a_missing_prefix_is_not_found_unless_emptiness_is_fine(
    tmp_path: Path, store: Credentials, bucket: str
) -> None:
    with pytest.raises(NotFoundError):
        copy(f"s3://{bucket}/none/", str(tmp_path / "x"), credentials=store)
    assert copy(f"s3://{bucket}/none/", str(tmp_path / "x"), credentials=store, empty_ok=True).files == 0
    with pytest.raises(NotFoundError, match="no bucket"):
        copy("s3://no-such-bucket-here/x/", str(tmp_path / "y"), credentials=store)


def test_progress_ends_at_the_totals(tmp_path: Path, store: Credentials, bucket: str) -> None:
    seen = []
    source = make_tree(tmp_path / "a")
    summary = copy(str(source), f"s3://{bucket}/t", credentials=store, progress=seen.append)
    last = seen[-1]
    assert (last.files, last.bytes) == (last.files_total, last.bytes_total) == (summary.files, summary.bytes)
    assert not last.listing and last.rate > 0 and last.seconds_left == 0


def test_ten_thousand_keys_are_listed_and_a_thousand_and_more_removed(
    tmp_path: Path, store: Credentials, bucket: str, listing: int
) -> None:
    assert listing == len({e.name for e in list_tree("s3://listing", credentials=store)}) == 10_000
    (tmp_path / "a").mkdir()
    for number in range(1_100):
        (tmp_path / f"a/{number}").touch()
    copy(str(tmp_path / "a"), f"s3://{bucket}/many", credentials=store)
    assert remove(f"s3://{bucket}/many", recursive=True, credentials=store) == 1_100
    assert list_tree(f"s3://{bucket}", credentials=store) == []


@pytest.mark.timeout(900)
def test_memory_stays_flat_for_a_4_gib_object(tmp_path: Path, store: Credentials, bucket: str) -> None:
    """A sparse file; the copier's peak memory must not know how large it is."""
    big = tmp_path / "sparse"
    with big.open("wb") as file:
        file.truncate(4 << 30)
    code = (
        # Not ru_maxrss: that one remembers the process which started this.
        "import sys; from trainshed.store import copy; from trainshed.store.credentials import make;"
        "c = make(*sys.argv[1:4]); s = copy(sys.argv[4], sys.argv[5], credentials=c); assert s.bytes == 4 << 30;"
        "print(next(int(l.split()[1]) >> 10 for l in open('/proc/self/status') if l.startswith('VmHWM')))"
    )
    argv = [sys.executable, "-c", code, store.access_key, store.secret_key, store.endpoint]
    for source, target in (
        (str(big), f"s3://{bucket}/sparse"),
        (f"s3://{bucket}/sparse", str(tmp_path / "down")),
    ):
        done = subprocess.run([*argv, source, target], capture_output=True, text=True, timeout=440)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 200, "MiB at the peak"
    assert (tmp_path / "down").stat().st_size == 4 << 30
    (tmp_path / "down").unlink()
    remove(f"s3://{bucket}/sparse", credentials=store)
