"""The commands on files and on the embedded store, as a person types them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from storekit import contents, fill

from trainshed.store.seaweed import embedded

pytestmark = [pytest.mark.store, pytest.mark.real]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("command-home")
    yield folder
    embedded.stop(folder)


def trainshed(home: Path, *argv: object, code: int = 0) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "TRAINSHED_HOME": str(home)}
    program = Path(sys.executable).with_name("trainshed")
    done = subprocess.run([program, *map(str, argv)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_day_with_the_store(home: Path, tmp_path: Path) -> None:
    """No store runs: the first URL starts it. Everything speaks JSON on request."""
    source = tmp_path / "a"
    fill(source / "x/one", 3000)
    fill(source / "two", 10)
    (source / "text").write_text("hello\n")
    first = json.loads(trainshed(home, "cp", source, "obs://day/data", "--json"))
    assert (first["files"], first["complete"]) == (3, True)
    assert "3 unchanged" in trainshed(home, "sync", source, "obs://day/data")
    rows = json.loads(trainshed(home, "ls", "obs://day/data", "--json"))
    assert [(r["name"], r["size"]) for r in rows] == [("text", 6), ("two", 10), ("x/", None)]
    assert "x/one" in trainshed(home, "ls", "obs://day/data", "-r")
    assert json.loads(trainshed(home, "du", "s3://day", "--json")) == {"files": 3, "bytes": 3016}
    assert trainshed(home, "cat", "obs://day/data/text") == "hello\n"
    trainshed(home, "cp", "obs://day/data", tmp_path / "b")
    assert contents(tmp_path / "b") == contents(source)
    (source / "two").unlink()
    assert "1 deleted" in trainshed(home, "sync", source, "obs://day/data", "--delete")
    status = json.loads(trainshed(home, "store", "status", "--json"))
    assert status["running"] and status["data_bytes"] > 0
    assert "no object" in trainshed(home, "cat", "obs://day/none", code=64)


@pytest.mark.field
def test_buckets_are_made_listed_and_removed_by_command(home: Path) -> None:
    assert trainshed(home, "store", "bucket", "add", "spare") == "made\n"
    assert trainshed(home, "store", "bucket", "add", "obs://spare") == "was there\n"
    assert "spare" in json.loads(trainshed(home, "store", "bucket", "list", "--json"))
    assert {"name": "spare/", "size": None, "mtime": None} in json.loads(
        trainshed(home, "ls", "s3://", "--json")
    )
    assert "spare/" in trainshed(home, "ls", "obs://")
    trainshed(home, "cp", __file__, "s3://spare/x")
    assert "not empty" in trainshed(home, "store", "bucket", "rm", "spare", code=64)
    assert "1 object in" in trainshed(home, "store", "bucket", "rm", "spare", "--recursive")
    assert "trainshed store bucket add spare" in trainshed(home, "ls", "s3://spare", code=64)


def test_users_are_made_shown_and_exported_without_spilling_secrets(home: Path) -> None:
    trainshed(home, "store", "up")
    shown = json.loads(trainshed(home, "store", "user", "add", "carol", "--team", "audio", "--json"))
    assert shown["buckets"] == ["carol", "audio"]
    secret = json.loads((home / "store/identities.json").read_text())["users"][1]["secret_key"]
    for words in (["user", "show", "carol"], ["user", "list"], ["status"]):
        assert secret not in trainshed(home, "store", *words)
    exported = json.loads(trainshed(home, "store", "user", "export"))
    assert {i["name"] for i in exported["identities"]} == {"owner", "carol"}
    assert f"AWS_SECRET_ACCESS_KEY={secret}" in trainshed(home, "store", "user", "env", "carol")
    assert "owner cannot be removed" in trainshed(home, "store", "user", "remove", "owner", code=64)
    assert "not allowed" in trainshed(home, "store", "user", "add", "Bad/Name", code=64)


def test_what_could_not_be_copied_is_named_and_the_exit_code_says_so(home: Path, tmp_path: Path) -> None:
    fill(tmp_path / "a/good", 5)
    (tmp_path / "a/bad").symlink_to("/etc")
    told = trainshed(home, "cp", tmp_path / "a", tmp_path / "b", code=1)
    assert "not copied: bad is a link that leaves the source" in told
    assert (tmp_path / "b/good").exists()
