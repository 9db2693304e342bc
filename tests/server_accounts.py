"""People of the server's tests: ann and cem of team red, ben of team blue, dan the administrator."""

from __future__ import annotations

from trainshed.server.accounts.identity import Door, Identity, Role
from trainshed.server.accounts.keyring import Keyring
from trainshed.server.accounts.people import People

OPERATOR = Identity(0, "operator", True, door=Door.CLI)
PASSWORD = "correct horse battery"


def add_people(found: People) -> None:
    for team in ("red", "blue"):
        found.add_team(OPERATOR, team)
    for name, team in (("ann", "red"), ("ben", "blue"), ("cem", "red")):
        found.add_user(OPERATOR, name, PASSWORD, team)
    found.set_member(OPERATOR, "red", "cem", Role.ADMIN)
    found.add_user(OPERATOR, "dan", PASSWORD, is_admin=True)


def logged_in(keyring: Keyring, name: str) -> Identity:
    session, _ = keyring.log_in(name, PASSWORD, "10.0.0.1")
    return keyring.identify(session, "10.0.0.1")
