"""Users of the embedded store: nobody gets another's bucket by choosing a name."""

from pathlib import Path

import pytest

from trainshed.errors import UsageError
from trainshed.store import identities

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
