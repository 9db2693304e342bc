"""Users of the embedded store: nobody gets another's bucket by choosing a name."""

import json
from pathlib import Path

import pytest

from trainshed.errors import UsageError
from trainshed.store.seaweed import identities

pytestmark = [pytest.mark.store]


def test_a_new_name_never_opens_what_others_have(tmp_path: Path) -> None:
    identities.ensure(tmp_path)
    identities.add_user(tmp_path, "alice", ["vision"], ["scans"])
    identities.add_team_bucket(tmp_path, "vision", "vision-data")
    identities.add_user(tmp_path, "ab", [], [])
    for name in ("vision", "scans", "vision-data", "ab-home"):
        with pytest.raises(UsageError, match=f"user '{name}' would get the bucket"):
            identities.add_user(tmp_path, name, [], [])
    for team in ("alice", "ab-home", "bob"):
        with pytest.raises(UsageError, match=f"team '{team}' would get the bucket"):
            identities.add_user(tmp_path, "bob", [team], [])
    assert set(identities.load(tmp_path).users) == {"owner", "alice", "ab"}
    again = identities.add_user(tmp_path, "alice", ["vision"], ["more"])
    assert again.buckets == ("scans", "more") and again.teams == ("vision",)


def test_a_removed_user_is_shut_out_by_name_until_added_again(tmp_path: Path) -> None:
    identities.ensure(tmp_path)
    first = identities.add_user(tmp_path, "bob", [], [])
    identities.remove_user(tmp_path, "bob")
    told = {item["name"]: item for item in json.loads((tmp_path / "s3.json").read_text())["identities"]}
    assert told["bob"] == {"name": "bob", "credentials": [], "actions": [], "disabled": True}
    again = identities.add_user(tmp_path, "bob", [], [])
    assert again.access_key != first.access_key
    told = json.loads((tmp_path / "s3.json").read_text())["identities"]
    assert [item.get("disabled") for item in told if item["name"] == "bob"] == [None]
