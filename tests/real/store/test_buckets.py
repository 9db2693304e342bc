"""Buckets: made where a copy needs them, made and removed by command, and checked before work is spent."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from storekit import MIB, fill

from trainshed.errors import UsageError
from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.store import (
    AccessDeniedError,
    BucketNotFoundError,
    Credentials,
    add_bucket,
    check_target,
    copy,
    list_buckets,
    list_level,
    list_tree,
    read_bytes,
    remove_bucket,
    write_bytes,
)
from trainshed.store.credentials import make
from trainshed.store.seaweed import embedded, identities, security

pytestmark = [pytest.mark.store, pytest.mark.real, pytest.mark.field]


def test_a_large_file_may_be_the_first_thing_in_a_new_bucket(store: Credentials, tmp_path: Path) -> None:
    source = fill(tmp_path / "weights", 9 * MIB)
    done = copy(str(source), "s3://not-there-yet/run/weights", credentials=store)
    assert (done.files, done.complete) == (1, True)
    assert read_bytes("s3://not-there-yet/run/weights", credentials=store) == source.read_bytes()


def test_buckets_are_added_listed_and_removed(store: Credentials) -> None:
    assert add_bucket("managed", credentials=store) and not add_bucket("s3://managed", credentials=store)
    assert "managed" in list_buckets(credentials=store)
    write_bytes("s3://managed/a/x", b"1", credentials=store)
    with pytest.raises(UsageError, match="not empty"):
        remove_bucket("managed", credentials=store)
    assert remove_bucket("managed", recursive=True, credentials=store) == 1
    assert "managed" not in list_buckets(credentials=store)
    with pytest.raises(BucketNotFoundError) as caught:
        remove_bucket("managed", credentials=store)
    assert caught.value.code == "no-bucket" and caught.value.store_code == "NoSuchBucket"


def test_a_bucket_with_an_unfinished_upload_can_be_removed(store: Credentials, client: S3Client) -> None:
    client.create_bucket("unfinished")
    client.start_multipart("unfinished", "x")
    assert remove_bucket("unfinished", credentials=store) == 0


def test_the_buckets_of_a_user_added_while_the_store_was_down_are_there(tmp_path: Path) -> None:
    folder = embedded.folder(tmp_path)
    identities.ensure(folder)
    identities.add_user(folder, "dora", [], ["doras-data"])
    endpoint = embedded.ensure_running(tmp_path)
    try:
        source = fill(tmp_path / "large", 9 * MIB)
        copy(str(source), "s3://doras-data/large", credentials=endpoint.for_user("dora"))
        assert {"dora", "doras-data"} <= set(list_buckets(credentials=endpoint.credentials))
    finally:
        embedded.stop(tmp_path)


def test_a_target_is_checked_without_leaving_anything(
    endpoint: embedded.Endpoint, store: Credentials, client: S3Client
) -> None:
    check_target("s3://checked/run/", credentials=store)
    assert list_tree("s3://checked/", credentials=store) == []
    assert not client.find_multipart("checked", "run/.trainshed-probe")
    wrong = make(store.access_key, "wrong", endpoint.url)
    with pytest.raises(AccessDeniedError):
        check_target("s3://checked/run/", credentials=wrong)


def test_one_level_is_listed_without_reading_the_tree(
    store: Credentials, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("top", "a/one", "a/two", "a/deep/three"):
        write_bytes(f"s3://{bucket}/{key}", b"12", credentials=store)
    S3Client(store).put(bucket, "b/", b"")
    asked: list[object] = []
    request = S3Client.request

    def counting(self: S3Client, *args: object, **more: object) -> object:
        asked.append(more.get("query"))
        return request(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(S3Client, "request", counting)
    level = [(e.name, e.size, e.is_directory) for e in list_level(f"s3://{bucket}", credentials=store)]
    assert sorted(level) == [("a", 0, True), ("b", 0, True), ("top", 2, False)]
    assert all(isinstance(query, dict) and query["delimiter"] == "/" for query in asked)


@pytest.mark.parametrize("attempt", range(4))
def test_a_store_that_answers_can_take_data_at_once(tmp_path: Path, attempt: int) -> None:
    """Its volumes are known to its master. (One start in three, they were not for five seconds.)"""
    embedded.ensure_running(tmp_path)
    try:
        folder = embedded.folder(tmp_path)
        port = json.loads((folder / "ports.json").read_text())["master"]
        shell = subprocess.run(
            [embedded.find_weed(), "shell", f"-master=127.0.0.1:{port}.{port + 10000}"],
            input="volume.list\nexit\n",
            env={**os.environ, **security.ensure(folder)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        capacity = re.search(r"free:(\d+)", shell.stdout)
        assert capacity and int(capacity[1]) > 0, shell.stdout + shell.stderr
    finally:
        embedded.stop(tmp_path)


def test_a_job_whose_target_cannot_be_written_never_starts(
    endpoint: embedded.Endpoint, tmp_path: Path
) -> None:
    outputs = [{"name": "model", "target": "s3://not-mine/model/"}]
    (tmp_path / "job.yaml").write_text(
        json.dumps({"name": "nowhere", "command": "echo started", "outputs": outputs})
    )
    wrong = make(endpoint.credentials.access_key, "wrong", endpoint.url).environment()
    done = subprocess.run(
        [Path(sys.executable).with_name("trainshed"), "run", str(tmp_path / "job.yaml")],
        env={**os.environ, **wrong, "TRAINSHED_HOME": str(endpoint.home)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "model cannot be saved to s3://not-mine/model/" in said and "started" not in done.stdout, said
