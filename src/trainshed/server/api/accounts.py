"""/api/v1: log-in, users, teams, quotas, tokens, keys, secrets, audit."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from trainshed.server.accounts import audit
from trainshed.server.accounts.identity import Role
from trainshed.server.api.callers import Bearer, Caller, ThePlatform, address_of
from trainshed.server.api.errors import RESPONSES
from trainshed.spec.kinds import DeviceKind

router = APIRouter(prefix="/api/v1", tags=["accounts"], responses=RESPONSES)
Name = Annotated[str, Path(max_length=64)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LogInBody(_Body):
    """Who logs in."""

    user: str = Field(max_length=64)
    password: str = Field(max_length=200)


class UserBody(_Body):
    """A new user; a password is made if none is given."""

    name: str = Field(max_length=64)
    password: str = Field("", max_length=200)
    team: str | None = Field(None, max_length=64)
    is_admin: bool = False


class UserChange(_Body):
    """What changes of a user."""

    password: str | None = Field(None, max_length=200)
    is_admin: bool | None = None
    is_active: bool | None = None


class TeamBody(_Body):
    name: str = Field(max_length=64)


class MemberBody(_Body):
    role: Role


class QuotaBody(_Body):
    """Devices that the team's regular jobs may hold; null: no quota."""

    devices: int | None = Field(ge=0, le=1_000_000)


class TokenBody(_Body):
    name: str = Field("", max_length=64)
    seconds: float | None = Field(None, gt=0, le=10 * 366 * 86400)


class SshKeyBody(_Body):
    name: str = Field("", max_length=64)
    key: str = Field(max_length=8192)


class SecretBody(_Body):
    value: str = Field(max_length=65536)


@router.post("/session")
def log_in(body: LogInBody, request: Request, platform: ThePlatform) -> dict[str, Any]:
    """Log in: a session for `Authorization: Bearer`, and when it ends."""
    session, expires = platform.keyring.log_in(body.user, body.password, address_of(request))
    return {"session": session, "expires": expires}


@router.delete("/session", status_code=204)
def log_out(who: Caller, bearer: Bearer, platform: ThePlatform) -> None:
    """End this session."""
    platform.keyring.log_out(bearer.credentials if bearer else "")


@router.get("/me")
def me(who: Caller) -> dict[str, Any]:
    """Who you are."""
    return {"name": who.name, "is_admin": who.is_admin, "teams": {t: r.value for t, r in who.teams.items()}}


@router.get("/users")
def list_users(who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """Those of your teams; for administrators all."""
    return {"users": platform.people.users(who)}


@router.post("/users", status_code=201)
def add_user(body: UserBody, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """A new user (administrators)."""
    password = platform.people.add_user(who, body.name, body.password, body.team, body.is_admin)
    return {"name": body.name} | ({} if body.password else {"password": password})


@router.patch("/users/{name}", status_code=204)
def change_user(name: Name, body: UserChange, who: Caller, platform: ThePlatform) -> None:
    """Your own password, or as an administrator anything of anybody."""
    platform.people.change_user(who, name, body.password, body.is_admin, body.is_active)


@router.get("/teams")
def list_teams(who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """Your teams with members and quotas; for administrators all."""
    return {"teams": platform.people.teams(who)}


@router.post("/teams", status_code=201)
def add_team(body: TeamBody, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """A new team (administrators)."""
    platform.people.add_team(who, body.name)
    return {"name": body.name}


@router.put("/teams/{team}/members/{user}", status_code=204)
def set_member(team: Name, user: Name, body: MemberBody, who: Caller, platform: ThePlatform) -> None:
    """Add somebody to a team, or change their role (administrators of the team)."""
    platform.people.set_member(who, team, user, body.role)


@router.delete("/teams/{team}/members/{user}", status_code=204)
def remove_member(team: Name, user: Name, who: Caller, platform: ThePlatform) -> None:
    """Take somebody out of a team (administrators of the team)."""
    platform.people.set_member(who, team, user, None)


@router.put("/teams/{team}/quotas/{kind}", status_code=204)
def set_quota(team: Name, kind: DeviceKind, body: QuotaBody, who: Caller, platform: ThePlatform) -> None:
    """A team's share of a kind of device (administrators)."""
    platform.people.set_quota(who, team, kind, body.devices)


@router.get("/tokens")
def list_tokens(who: Caller, platform: ThePlatform) -> dict[str, Any]:
    return {"tokens": platform.keyring.tokens(who)}


@router.post("/tokens", status_code=201)
def add_token(body: TokenBody, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """A personal token; it is shown this once."""
    number, token = platform.keyring.add_token(who, body.name, body.seconds)
    return {"id": number, "token": token}


@router.delete("/tokens/{number}", status_code=204)
def remove_token(number: Name, who: Caller, platform: ThePlatform) -> None:
    platform.keyring.remove_token(who, number)


@router.get("/access-keys")
def list_access_keys(who: Caller, platform: ThePlatform) -> dict[str, Any]:
    return {"access_keys": platform.keyring.access_keys(who)}


@router.post("/access-keys", status_code=201)
def add_access_key(who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """AK and SK; the SK is shown this once."""
    key, secret = platform.keyring.add_access_key(who)
    return {"access_key": key, "secret_key": secret}


@router.delete("/access-keys/{key}", status_code=204)
def remove_access_key(key: Name, who: Caller, platform: ThePlatform) -> None:
    platform.keyring.remove_access_key(who, key)


@router.get("/ssh-keys")
def list_ssh_keys(who: Caller, platform: ThePlatform) -> dict[str, Any]:
    return {"ssh_keys": platform.keyring.ssh_keys(who)}


@router.post("/ssh-keys", status_code=201)
def add_ssh_key(body: SshKeyBody, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """A public key; its fingerprint."""
    return {"fingerprint": platform.keyring.add_ssh_key(who, body.name, body.key)}


@router.delete("/ssh-keys/{fingerprint:path}", status_code=204)
def remove_ssh_key(fingerprint: Name, who: Caller, platform: ThePlatform) -> None:
    platform.keyring.remove_ssh_key(who, fingerprint)


@router.get("/secrets")
def list_secrets(who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """The names of your secrets; nobody reads their values but your jobs."""
    return {"secrets": platform.keyring.secrets(who)}


@router.put("/secrets/{name}", status_code=204)
def set_secret(name: Name, body: SecretBody, who: Caller, platform: ThePlatform) -> None:
    """Store a secret, or a new value of one."""
    platform.keyring.set_secret(who, name, body.value)


@router.delete("/secrets/{name}", status_code=204)
def remove_secret(name: Name, who: Caller, platform: ThePlatform) -> None:
    platform.keyring.remove_secret(who, name)


@router.get("/audit")
def read_audit(
    who: Caller,
    platform: ThePlatform,
    before: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    user: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> dict[str, Any]:
    """Who did what by which door, newest first: for administrators all, for others what they did themselves."""
    chosen = audit.printable(user, 64) if who.is_admin else who.name
    return {"entries": audit.entries(platform.database, before, chosen, limit)}
