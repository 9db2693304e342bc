"""Who may use the embedded store: users with keys made here, teams, and the buckets each reaches.

It knows only its own file (mode 0600) and SeaweedFS's format. The same rendering serves an
external SeaweedFS cluster (`weed s3 -config=…`).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from trainshed import files
from trainshed.errors import NotFoundError, UsageError
from trainshed.files import write_atomic

OWNER = "owner"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,47}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_RIGHTS = ("Read", "Write", "List", "Tagging")


@dataclass(frozen=True)
class User:
    """A user reaches the bucket of their own name, those listed here, and those of their teams."""

    name: str
    access_key: str
    secret_key: str = field(repr=False)
    teams: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    admin: bool = False


@dataclass(frozen=True)
class Identities:
    users: dict[str, User]
    teams: dict[str, tuple[str, ...]]
    removed: tuple[str, ...] = ()
    """Former users: a running SeaweedFS removes a user only when told explicitly."""

    def buckets_of(self, user: User) -> tuple[str, ...]:
        found = [home_bucket(user.name), *user.buckets]
        for team in user.teams:
            found += [home_bucket(team), *self.teams.get(team, ())]
        return tuple(dict.fromkeys(found))

    def render(self) -> str:
        """The identities as SeaweedFS reads them."""
        listed: list[dict[str, object]] = []
        for user in self.users.values():
            actions = ["Admin", *_RIGHTS] if user.admin else []
            if not user.admin:
                actions = [f"{right}:{bucket}" for bucket in self.buckets_of(user) for right in _RIGHTS]
            key = {"accessKey": user.access_key, "secretKey": user.secret_key}
            listed.append({"name": user.name, "credentials": [key], "actions": actions})
        for name in self.removed:
            listed.append({"name": name, "credentials": [], "actions": [], "disabled": True})
        return json.dumps({"identities": listed}, indent=1)


def home_bucket(name: str) -> str:
    """The bucket that belongs to a user or team: its name, made long enough to be a bucket's."""
    return name if len(name) >= 3 else f"{name}-home"


def load(folder: Path) -> Identities:
    try:
        data = json.loads((folder / "identities.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Identities({OWNER: _new_user(OWNER, admin=True)}, {})
    users = {
        u["name"]: User(
            u["name"], u["access_key"], u["secret_key"], tuple(u["teams"]), tuple(u["buckets"]), u["admin"]
        )
        for u in data["users"]
    }
    teams = {name: tuple(buckets) for name, buckets in data["teams"].items()}
    return Identities(users, teams, tuple(data.get("removed", ())))


def save(folder: Path, identities: Identities) -> None:
    data = {
        "users": [asdict(u) for u in identities.users.values()],
        "teams": identities.teams,
        "removed": identities.removed,
    }
    write_secret(folder / "identities.json", json.dumps(data, indent=1))
    write_secret(folder / "s3.json", identities.render())


def ensure(folder: Path) -> Identities:
    """Load the identities, making the owner's on first use."""
    with locked(folder):
        found = load(folder)
        save(folder, found)
    return found


def add_user(folder: Path, name: str, teams: list[str], buckets: list[str], *, admin: bool = False) -> User:
    """Add a user, or add teams and buckets to one that exists; keys stay as they are."""
    _check(name, _NAME, "user")
    for team in teams:
        _check(team, _NAME, "team")
    for bucket in buckets:
        _check(bucket, _BUCKET, "bucket")
    with locked(folder):
        found = load(folder)
        _refuse_overlap(found, name, teams)
        old = found.users.get(name) or _new_user(name, admin=admin)
        user = replace(
            old,
            teams=tuple(dict.fromkeys((*old.teams, *teams))),
            buckets=tuple(dict.fromkeys((*old.buckets, *buckets))),
            admin=old.admin or admin,
        )
        known = {**dict.fromkeys(teams, ()), **found.teams}
        removed = tuple(other for other in found.removed if other != name)
        save(folder, Identities({**found.users, name: user}, known, removed))
    return user


def _refuse_overlap(found: Identities, name: str, teams: list[str]) -> None:
    """A bucket implied by a name must not belong to another user already."""
    held = {bucket for other in found.users.values() for bucket in found.buckets_of(other)}
    held |= {bucket for team, more in found.teams.items() for bucket in (home_bucket(team), *more)}
    if name not in found.users and home_bucket(name) in held:
        raise UsageError(
            f"user {name!r} would get the bucket {home_bucket(name)!r}, which belongs to others",
            "choose another name",
        )
    homes = {home_bucket(user) for user in (*found.users, name)}
    for team in teams:
        if team not in found.teams and home_bucket(team) in homes:
            raise UsageError(
                f"team {team!r} would get the bucket {home_bucket(team)!r}, which is a user's",
                "choose another name",
            )


def add_team_bucket(folder: Path, team: str, bucket: str) -> None:
    _check(team, _NAME, "team")
    _check(bucket, _BUCKET, "bucket")
    with locked(folder):
        found = load(folder)
        buckets = tuple(dict.fromkeys((*found.teams.get(team, ()), bucket)))
        save(folder, replace(found, teams={**found.teams, team: buckets}))


def remove_user(folder: Path, name: str) -> None:
    if name == OWNER:
        raise UsageError("the store's owner cannot be removed", "remove another user")
    with locked(folder):
        found = load(folder)
        if name not in found.users:
            raise NotFoundError(f"no store user {name!r}", f"there are: {', '.join(found.users)}")
        others = {k: v for k, v in found.users.items() if k != name}
        save(folder, Identities(others, found.teams, (*found.removed, name)))


def get_user(folder: Path, name: str) -> User:
    users = load(folder).users
    if name not in users:
        raise NotFoundError(f"no store user {name!r}", f"there are: {', '.join(users)}")
    return users[name]


def write_secret(path: Path, text: str) -> None:
    """Replace a file at once; it is never readable by others, not even for a moment."""
    write_atomic(path, text, 0o600)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with files.locked(folder / "identities.lock", 30.0, "the list of the store's users"):
        yield


def _new_user(name: str, *, admin: bool) -> User:
    # Letters and digits only: keys travel in headers, URLs and environment variables.
    return User(name, "TS" + secrets.token_hex(9).upper(), secrets.token_hex(20), admin=admin)


def _check(name: str, pattern: re.Pattern[str], what: str) -> None:
    if not pattern.fullmatch(name):
        raise UsageError(
            f"{what} name {name!r} is not allowed", "use 2-48 lower-case letters, digits and '-'"
        )
