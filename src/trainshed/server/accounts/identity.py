"""Who is there, by which door, and what they may: the answers every door asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainshed.errors import NotFoundError, TrainshedError, UsageError


class Role(StrEnum):
    """What somebody is in a team."""

    MEMBER = "member"
    ADMIN = "admin"


class Door(StrEnum):
    """By which way a request came."""

    API = "api"
    CLI = "cli"
    LOOP = "loop"


class DeniedError(TrainshedError):
    """Somebody is known, but may not do that."""

    code = "denied"


class UnknownCallerError(TrainshedError):
    """Nobody is logged in: no credential, or one that is not valid (any more)."""

    code = "unauthenticated"

    def __init__(self) -> None:
        super().__init__(
            "log in first: the token or session is missing, wrong or expired",
            "send `Authorization: Bearer TOKEN`",
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """One user at one door."""

    id: int
    name: str
    is_admin: bool
    teams: Mapping[str, Role] = field(default_factory=dict)
    door: Door = Door.API
    address: str = ""

    def sees(self, team: str) -> bool:
        return self.is_admin or team in self.teams

    def manages(self, team: str) -> bool:
        return self.is_admin or self.teams.get(team) is Role.ADMIN

    def may_change(self, owner: str, team: str) -> bool:
        """Whether they may stop, change or remove what belongs to `owner`."""
        return self.manages(team) or (owner == self.name and team in self.teams)

    def team(self, wanted: str | None) -> str:
        """The team to work for: the one named, or the only one."""
        if wanted is not None:
            if wanted not in self.teams:
                raise NotFoundError(f"no such team: {wanted!r:.80}", f"yours: {_list(self.teams)}")
            return wanted
        if len(self.teams) != 1:
            raise UsageError(f"team: you are in {len(self.teams)} teams", f"choose one: {_list(self.teams)}")
        return next(iter(self.teams))

    def require_admin(self) -> None:
        if not self.is_admin:
            raise DeniedError("only an administrator may do that", "ask one")

    def require_manager(self, team: str) -> None:
        """Also for a team that does not exist: whether it does is nobody else's business."""
        if not self.manages(team):
            raise DeniedError("only an administrator of the team may do that", "ask one")


def _list(teams: Mapping[str, Role]) -> str:
    return ", ".join(sorted(teams)) or "none; ask an administrator to add you to one"
