"""Users, teams, memberships and quotas: the same functions for the API and for `trainshed admin`.

Users are deactivated, never deleted: their names stand in the records of runs,
and nobody else may come to own these by taking the name.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from trainshed.errors import NotFoundError, UsageError
from trainshed.server.accounts import audit
from trainshed.server.accounts.identity import Door, Identity, Role
from trainshed.server.accounts.passwords import hash_password
from trainshed.server.database import Database
from trainshed.server.database.schema import memberships, quotas, sessions, teams, users
from trainshed.spec.kinds import DeviceKind

_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,31}\Z")
DEFAULT_TEAM = "default"


class ConflictError(UsageError):
    """There is such a thing already."""

    code = "conflict"


@dataclass(frozen=True)
class People:
    """All accounts of one server."""

    database: Database

    def make_first_admin(self) -> str | None:
        """At first start: `admin` in team `default`; its password, to be shown once. None if there are users."""
        password = secrets.token_urlsafe(12)
        hashed = hash_password(password)
        who = Identity(0, "server", True, door=Door.CLI)
        with self.database.write() as connection:
            if connection.scalar(select(func.count()).select_from(users)):
                return None
            user = _insert_user(connection, "admin", hashed, is_admin=True)
            team = _insert_team(connection, DEFAULT_TEAM)
            connection.execute(insert(memberships).values(user_id=user, team_id=team, role=Role.ADMIN.value))
            audit.record(connection, who, "user.create", "admin", "first start")
        return password

    def add_user(
        self, who: Identity, name: str, password: str = "", team: str | None = None, is_admin: bool = False
    ) -> str:
        """A new user; gives the password, made if none is given."""
        who.require_admin()
        _check_name("user", name)
        password = password or secrets.token_urlsafe(12)
        hashed = hash_password(password)
        with self._changing(f"user {name!r}") as connection:
            user = _insert_user(connection, name, hashed, is_admin)
            if team is not None:
                row = {"user_id": user, "team_id": _team_id(connection, team), "role": Role.MEMBER.value}
                connection.execute(insert(memberships).values(row))
            audit.record(connection, who, "user.create", name, f"admin={is_admin}", team or "")
        return password

    def change_user(
        self,
        who: Identity,
        name: str,
        password: str | None = None,
        is_admin: bool | None = None,
        is_active: bool | None = None,
    ) -> None:
        """An administrator changes anybody, others their own password; all sessions of the user end."""
        if who.name != name or is_admin is not None or is_active is not None:
            who.require_admin()
        values: dict[str, Any] = {}
        if password is not None:
            values["password"] = hash_password(password)
        if is_admin is not None:
            values["is_admin"] = is_admin
        if is_active is not None:
            values["is_active"] = is_active
        if not values:
            return
        with self.database.write() as connection:
            found = _user_id(connection, name)
            admins = select(func.count()).select_from(users).where(users.c.is_admin, users.c.is_active)
            before = connection.scalar(admins)
            connection.execute(update(users).where(users.c.id == found).values(values))
            connection.execute(delete(sessions).where(sessions.c.user_id == found))
            if before and not connection.scalar(admins):
                raise UsageError(f"user {name!r} is the last administrator", "make another one first")
            audit.record(connection, who, "user.change", name, ", ".join(sorted(values)))

    def users(self, who: Identity) -> list[dict[str, Any]]:
        """All users for an administrator; for others those of their teams."""
        query = (
            select(
                users.c.name,
                users.c.is_admin,
                users.c.is_active,
                users.c.created,
                teams.c.name.label("team"),
                memberships.c.role,
            )
            .select_from(
                users.outerjoin(memberships, memberships.c.user_id == users.c.id).outerjoin(
                    teams, teams.c.id == memberships.c.team_id
                )
            )
            .order_by(users.c.name, teams.c.name)
        )
        found: dict[str, dict[str, Any]] = {}
        with self.database.read() as connection:
            for row in connection.execute(query).mappings():
                entry = found.setdefault(
                    row["name"],
                    {k: row[k] for k in ("name", "is_admin", "is_active", "created")} | {"teams": {}},
                )
                if row["team"] is not None and who.sees(row["team"]):
                    entry["teams"][row["team"]] = row["role"]
        return [e for e in found.values() if who.is_admin or e["teams"] or e["name"] == who.name]

    def add_team(self, who: Identity, name: str) -> None:
        who.require_admin()
        _check_name("team", name)
        with self._changing(f"team {name!r}") as connection:
            _insert_team(connection, name)
            audit.record(connection, who, "team.create", name, team=name)

    def teams(self, who: Identity) -> list[dict[str, Any]]:
        """The teams somebody sees, with members and quotas."""
        joined = memberships.join(users, users.c.id == memberships.c.user_id)
        with self.database.read() as connection:
            found = []
            for row in connection.execute(select(teams).order_by(teams.c.name)).mappings():
                if not who.sees(row["name"]):
                    continue
                members = connection.execute(
                    select(users.c.name, memberships.c.role)
                    .select_from(joined)
                    .where(memberships.c.team_id == row["id"])
                )
                limits = connection.execute(
                    select(quotas.c.kind, quotas.c.devices).where(quotas.c.team_id == row["id"])
                )
                found.append(
                    {
                        "name": row["name"],
                        "created": row["created"],
                        "members": {member.name: member.role for member in members},
                        "quotas": {limit.kind: limit.devices for limit in limits},
                    }
                )
        return found

    def set_member(self, who: Identity, team: str, user: str, role: Role | None) -> None:
        """Add somebody to a team, change their role, or take them out (None)."""
        who.require_manager(team)
        with self.database.write() as connection:
            ids = {"team_id": _team_id(connection, team), "user_id": _user_id(connection, user)}
            same = (memberships.c.team_id == ids["team_id"]) & (memberships.c.user_id == ids["user_id"])
            connection.execute(delete(memberships).where(same))
            if role is not None:
                connection.execute(insert(memberships).values(**ids, role=role.value))
            detail = f"{user}: {role.value if role else 'removed'}"
            audit.record(connection, who, "team.member", team, detail, team)

    def set_quota(self, who: Identity, team: str, kind: DeviceKind, devices: int | None) -> None:
        """How many devices of a kind a team's regular jobs may hold; None: no quota."""
        who.require_admin()
        if devices is not None and not 0 <= devices <= 1_000_000:
            raise UsageError(f"quota: invalid number of devices: {devices}", "write 0 or more")
        with self.database.write() as connection:
            found = _team_id(connection, team)
            same = (quotas.c.team_id == found) & (quotas.c.kind == kind.value)
            connection.execute(delete(quotas).where(same))
            if devices is not None:
                connection.execute(insert(quotas).values(team_id=found, kind=kind.value, devices=devices))
            audit.record(connection, who, "team.quota", team, f"{kind.value}: {devices}", team)

    def quotas(self) -> dict[tuple[str, str], int]:
        """Of every team and kind of device with a quota, its number."""
        query = select(teams.c.name, quotas.c.kind, quotas.c.devices).select_from(
            quotas.join(teams, teams.c.id == quotas.c.team_id)
        )
        with self.database.read() as connection:
            return {(row.name, row.kind): row.devices for row in connection.execute(query)}

    @contextmanager
    def _changing(self, what: str) -> Iterator[Connection]:
        try:
            with self.database.write() as connection:
                yield connection
        except IntegrityError as error:
            raise ConflictError(f"{what} exists already", "choose another name") from error


def load_identity(connection: Connection, user_id: int, door: Door, address: str) -> Identity | None:
    """An active user with their teams; None for one that is not (any more)."""
    user = connection.execute(select(users).where(users.c.id == user_id, users.c.is_active)).first()
    if user is None:
        return None
    query = (
        select(teams.c.name, memberships.c.role)
        .select_from(memberships.join(teams, teams.c.id == memberships.c.team_id))
        .where(memberships.c.user_id == user_id)
    )
    found = {row.name: Role(row.role) for row in connection.execute(query)}
    return Identity(user.id, user.name, user.is_admin, found, door, address)


def _user_id(connection: Connection, name: str) -> int:
    found = connection.scalar(select(users.c.id).where(users.c.name == _cleaned(name)))
    if found is None:
        raise NotFoundError(f"no such user: {name!r:.80}", "`trainshed admin user list` lists them")
    return int(found)


def _team_id(connection: Connection, name: str) -> int:
    found = connection.scalar(select(teams.c.id).where(teams.c.name == _cleaned(name)))
    if found is None:
        raise NotFoundError(f"no such team: {name!r:.80}", "`trainshed admin team list` lists them")
    return int(found)


def _cleaned(name: str) -> str:
    return name if _NAME.match(name) else ""


def _insert_user(connection: Connection, name: str, password: str, is_admin: bool) -> int:
    row = {
        "name": name,
        "password": password,
        "is_admin": is_admin,
        "is_active": True,
        "created": time.time(),
    }
    made = connection.execute(insert(users).values(row))
    return int(made.inserted_primary_key[0])  # type: ignore[index]


def _insert_team(connection: Connection, name: str) -> int:
    made = connection.execute(insert(teams).values(name=name, created=time.time()))
    return int(made.inserted_primary_key[0])  # type: ignore[index]


def _check_name(what: str, name: str) -> None:
    if not _NAME.match(name):
        raise UsageError(
            f"{what}: invalid name: {name!r:.80}", "use up to 32 lower-case letters, digits, dot, _ and -"
        )
