"""`trainshed admin`: users, teams and quotas of the server, on its own machine, also while it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from trainshed.cli import process
from trainshed.cli.groups import command_group
from trainshed.cli.output import print_json, print_table
from trainshed.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from trainshed.server.accounts.identity import Identity
    from trainshed.server.accounts.people import People

app = command_group("Users, teams and quotas of the server.")
user_app = command_group("Users: add, list, passwords, deactivate.")
app.add_typer(user_app, name="user")
team_app = command_group("Teams: add, list, members.")
app.add_typer(team_app, name="team")
quota_app = command_group("Quotas: how many devices a team's regular jobs may hold.")
app.add_typer(quota_app, name="quota")

Name = Annotated[str, typer.Argument(show_default=False)]
DatabaseUrl = Annotated[str | None, typer.Option("--database", help="as of `trainshed serve`")]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


@user_app.command("add")
def add_user(
    name: Name,
    team: Annotated[str | None, typer.Option(help="the team to put them into")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="an administrator of the server")] = False,
    password_stdin: Annotated[bool, typer.Option(help="read the password from standard input")] = False,
    database: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Add a user; without --password-stdin a password is made and shown once."""
    given = _password() if password_stdin else ""
    with _people(database) as (people, who):
        password = people.add_user(who, name, given, team, admin)
    shown = {} if given else {"password": password}
    if as_json:
        print_json({"name": name} | shown)
    else:
        print(f"added {name}" + (f", password {password} (shown this once)" if shown else ""))


@user_app.command("list")
def list_users(database: DatabaseUrl = None, as_json: Json = False) -> None:
    """All users with their teams."""
    with _people(database) as (people, who):
        found = people.users(who)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            user["name"],
            "admin" if user["is_admin"] else "",
            "" if user["is_active"] else "inactive",
            ", ".join(f"{team} ({role})" for team, role in user["teams"].items()),
        ]
        for user in found
    ]
    print_table(["USER", "ROLE", "STATE", "TEAMS"], rows)


@user_app.command("password")
def set_password(name: Name, database: DatabaseUrl = None) -> None:
    """Set a password, read from standard input; all sessions of the user end."""
    with _people(database) as (people, who):
        people.change_user(who, name, password=_password())
    print(f"changed {name}")


@user_app.command("disable")
def disable(name: Name, database: DatabaseUrl = None) -> None:
    """Deactivate a user: sessions, tokens and keys no longer work. Their runs go on."""
    with _people(database) as (people, who):
        people.change_user(who, name, is_active=False)
    print(f"deactivated {name}")


@user_app.command("enable")
def enable(name: Name, database: DatabaseUrl = None) -> None:
    """Activate a user again."""
    with _people(database) as (people, who):
        people.change_user(who, name, is_active=True)
    print(f"activated {name}")


@team_app.command("add")
def add_team(name: Name, database: DatabaseUrl = None) -> None:
    """Add a team."""
    with _people(database) as (people, who):
        people.add_team(who, name)
    print(f"added {name}")


@team_app.command("list")
def list_teams(database: DatabaseUrl = None, as_json: Json = False) -> None:
    """All teams with members and quotas."""
    with _people(database) as (people, who):
        found = people.teams(who)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            team["name"],
            ", ".join(f"{name} ({role})" for name, role in sorted(team["members"].items())),
            ", ".join(f"{kind} {count}" for kind, count in sorted(team["quotas"].items())),
        ]
        for team in found
    ]
    print_table(["TEAM", "MEMBERS", "QUOTAS"], rows)


@team_app.command("member")
def set_member(
    team: Name,
    user: Name,
    role: Annotated[str, typer.Option(help="member or admin")] = "member",
    remove: Annotated[bool, typer.Option("--remove", help="take them out")] = False,
    database: DatabaseUrl = None,
) -> None:
    """Put somebody into a team, change their role, or take them out."""
    with _people(database) as (people, who):
        from trainshed.server.accounts.identity import Role

        if role not in list(Role):
            raise UsageError(f"--role {role!r}", f"choose {' or '.join(Role)}")
        people.set_member(who, team, user, None if remove else Role(role))
    print(f"{user} {'is no longer in' if remove else f'is {role} of'} {team}")


@quota_app.command("set")
def set_quota(
    team: Name,
    kind: Annotated[str, typer.Argument(help="cpu, nvidia or ascend", show_default=False)],
    devices: Annotated[int, typer.Argument(help="-1: no quota", show_default=False)],
    database: DatabaseUrl = None,
) -> None:
    """Set a team's quota of a kind of device."""
    from trainshed.spec.kinds import DeviceKind

    if kind not in list(DeviceKind):
        raise UsageError(f"no kind of device is called {kind!r}", f"choose {', '.join(DeviceKind)}")
    with _people(database) as (people, who):
        people.set_quota(who, team, DeviceKind(kind), None if devices == -1 else devices)
    print(f"{team}: {kind} {'without quota' if devices == -1 else devices}")


@contextmanager
def _people(url: str | None) -> Iterator[tuple[People, Identity]]:
    """Whoever may read the home's database and key is its operator."""
    try:
        from trainshed.server.accounts.identity import Door, Identity
        from trainshed.server.platform import Platform
    except ImportError as error:
        raise RefusedError(
            f"the server needs packages that are not installed: {error.name}",
            "pip install 'trainshed[server]'",
        ) from error
    import getpass

    platform = Platform.open(process.home(), url)
    try:
        yield platform.people, Identity(0, getpass.getuser(), True, door=Door.CLI)
    finally:
        platform.close()


def _password() -> str:
    return sys.stdin.readline().rstrip("\n")
