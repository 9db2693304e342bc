"""Commands on the embedded store: up, down, status, and its users."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trainshed.cli import process
from trainshed.cli.groups import command_group
from trainshed.plural import counted

if TYPE_CHECKING:
    from trainshed.store import Credentials

app = command_group("The embedded object store and its users.")
user_app = command_group("Users of the embedded store: keys, teams and buckets.")
app.add_typer(user_app, name="user")
bucket_app = command_group("Buckets of the store that s3:// (or obs://) reaches.")
app.add_typer(bucket_app, name="bucket")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Bucket = Annotated[
    str, typer.Argument(help="A bucket: its name, s3://NAME or obs://NAME.", show_default=False)
]
Name = Annotated[str, typer.Argument(help="The user's name.", show_default=False)]


@app.command()
def up(as_json: Json = False) -> None:
    """Start the store, unless it runs."""
    from trainshed.store.seaweed import embedded

    endpoint = embedded.ensure_running(process.home())
    if as_json:
        print(json.dumps({"url": endpoint.url, "pid": endpoint.pid}))
    else:
        print(f"store at {endpoint.url}")


@app.command()
def down(as_json: Json = False) -> None:
    """Stop the store; its data stay."""
    from trainshed.store.seaweed import embedded

    stopped = embedded.stop(process.home())
    print(json.dumps({"stopped": stopped}) if as_json else "stopped" if stopped else "was not running")


@app.command()
def status(as_json: Json = False) -> None:
    """Whether the store runs, where, and how much it holds."""
    from trainshed.store.seaweed import embedded

    state = embedded.status(process.home())
    if as_json:
        print(json.dumps({**asdict(state), "folder": str(state.folder)}))
        return
    if not state.running:
        print(f"not running; data in {state.folder} ({state.data_bytes / 2**20:.1f} MiB)")
        return
    memory = "not measured" if state.memory_bytes is None else f"{state.memory_bytes / 2**20:.0f} MiB"
    print(
        f"running at {state.url} (pid {state.store_pid}, watched by {state.pid}, {counted(state.restarts, 'restart')})"
    )
    print(f"memory {memory}, data {state.data_bytes / 2**20:.1f} MiB in {state.folder}")


@bucket_app.command("add")
def add_bucket(bucket: Bucket) -> None:
    """Make a bucket, unless it is there."""
    from trainshed.store import add_bucket as add

    print("made" if add(bucket, credentials=_keys(bucket)) else "was there")


@bucket_app.command("list")
def list_buckets(
    scheme: Annotated[str, typer.Option(help="s3 or obs: whose settings name the store.")] = "s3",
    as_json: Json = False,
) -> None:
    """All buckets that you may see."""
    from trainshed.store import list_buckets as found

    names = found(scheme, credentials=process.store_access().credentials(scheme))
    print(json.dumps(names) if as_json else "\n".join(names))


@bucket_app.command("rm")
def remove_bucket(
    bucket: Bucket,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Also delete everything in it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete a bucket."""
    from trainshed.store import remove_bucket as remove

    count = remove(bucket, recursive=recursive, credentials=_keys(bucket))
    print(
        json.dumps({"objects": count})
        if as_json
        else f"removed, with {count} object{'' if count == 1 else 's'} in it"
    )


@user_app.command("add")
def add(
    name: Name,
    team: Annotated[list[str] | None, typer.Option("--team", help="A team the user belongs to.")] = None,
    bucket: Annotated[
        list[str] | None, typer.Option("--bucket", help="A further bucket of the user.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May reach every bucket.")] = False,
    as_json: Json = False,
) -> None:
    """Add a user (keys are made), or add teams and buckets to one."""
    from trainshed.store.seaweed import embedded, identities

    place = embedded.folder(process.home())
    identities.ensure(place)
    user = identities.add_user(place, name, team or [], bucket or [], admin=admin)
    embedded.reload_identities(process.home())
    _show(user, as_json)


@user_app.command("team-bucket")
def team_bucket(
    team: Annotated[str, typer.Argument(help="The team.", show_default=False)],
    bucket: Annotated[str, typer.Argument(help="A bucket all its members reach.", show_default=False)],
) -> None:
    """Give a team a bucket."""
    from trainshed.store.seaweed import embedded, identities

    identities.add_team_bucket(embedded.folder(process.home()), team, bucket)
    embedded.reload_identities(process.home())


@user_app.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Where a user's keys are, and what they reach."""
    from trainshed.store.seaweed import embedded, identities

    _show(identities.get_user(embedded.folder(process.home()), name), as_json)


@user_app.command("env")
def env(name: Name) -> None:
    """Print shell lines that let official clients in as this user. They contain the secret key."""
    from trainshed.store.seaweed import embedded

    for key, value in embedded.ensure_running(process.home()).for_user(name).environment().items():
        print(f"export {key}={value}")


@user_app.command("list")
def list_users(as_json: Json = False) -> None:
    """All users."""
    from trainshed.store.seaweed import embedded, identities

    known = identities.load(embedded.folder(process.home()))
    rows = [
        {"name": u.name, "teams": list(u.teams), "buckets": ["*"] if u.admin else list(known.buckets_of(u))}
        for u in known.users.values()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:<20} {', '.join(row['buckets'])}")


@user_app.command("remove")
def remove(name: Name) -> None:
    """Remove a user; buckets and data stay."""
    from trainshed.store.seaweed import embedded, identities

    identities.remove_user(embedded.folder(process.home()), name)
    embedded.reload_identities(process.home())


@user_app.command("export")
def export() -> None:
    """Print all identities, with secrets, as an external SeaweedFS reads them (`weed s3 -config=FILE`)."""
    from trainshed.store.seaweed import embedded, identities

    print(identities.load(embedded.folder(process.home())).render())


def _keys(bucket: str) -> Credentials | None:
    return process.store_access().keys(bucket if "://" in bucket else f"s3://{bucket}")


def _show(user: object, as_json: bool) -> None:
    from trainshed.store.seaweed import embedded, identities

    assert isinstance(user, identities.User)
    folder = embedded.folder(process.home())
    buckets = ["*"] if user.admin else list(identities.load(folder).buckets_of(user))
    row = {"name": user.name, "access_key": user.access_key, "teams": list(user.teams), "buckets": buckets}
    if as_json:
        print(json.dumps(row))
        return
    print(f"user {user.name}: access key {user.access_key}, buckets {', '.join(buckets)}")
    print(
        f"the secret key is in {folder / 'identities.json'}; `trainshed store user env {user.name}` prints it"
    )
