"""`trainshed profile add|list|show|keys|rm`: the settings of a site."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainshed.cli import process
from trainshed.cli.groups import command_group
from trainshed.cli.output import print_json, print_table
from trainshed.errors import UsageError

app = command_group("Site profiles: partition, account, modules, paths, interface.")

Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
Name = Annotated[str, typer.Argument(help="the profile; `slurm` is used when a run names none")]


@app.command()
def add(
    name: Name,
    pairs: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="see `keys`")] = None,
    as_json: Json = False,
) -> None:
    """Make a profile, or change some of its keys.

    `KEY=` removes a key; `env.NAME=VALUE` and `gres.KIND=NAME` set one entry.
    """
    from trainshed.engines.slurm import profile

    values: dict[str, Any] = {}
    if name in profile.names(process.home()):
        values = profile.load(name, process.home()).model_dump(mode="json", exclude_unset=True)
    for pair in pairs or ():
        _set(values, pair)
    saved = profile.save(name, values, process.home())
    if as_json:
        print_json(saved.model_dump(mode="json", exclude_unset=True))
    else:
        print(profile.path_of(name, process.home()))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the profiles."""
    from trainshed.engines.slurm import profile

    found = {name: profile.load(name, process.home()) for name in profile.names(process.home())}
    if as_json:
        print_json({name: item.model_dump(mode="json", exclude_unset=True) for name, item in found.items()})
        return
    rows = [[name, p.login or "", p.partition or "", p.account or ""] for name, p in found.items()]
    print_table(["PROFILE", "LOGIN", "PARTITION", "ACCOUNT"], rows)


@app.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show what a profile says."""
    from trainshed.engines.slurm import profile

    found = profile.load(name, process.home()).model_dump(mode="json", exclude_unset=True)
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        print(f"{key}: {value}")


@app.command()
def keys(as_json: Json = False) -> None:
    """List every key a profile may have."""
    from trainshed.engines.slurm.profile import Profile

    found = {key: field.description or "" for key, field in Profile.model_fields.items()}
    if as_json:
        print_json(found)
        return
    for key, text in found.items():
        print(f"{key:16} {text}")


@app.command()
def rm(name: Name, as_json: Json = False) -> None:
    """Remove a profile."""
    from trainshed.engines.slurm import profile

    profile.remove(name, process.home())
    if as_json:
        print_json([name])


def _set(values: dict[str, Any], pair: str) -> None:
    from trainshed import yamlfile

    key, equals, text = pair.partition("=")
    if not equals or not key:
        raise UsageError(f"{pair!r} is not KEY=VALUE", "write e.g. partition=gpu")
    group, dot, entry = key.partition(".")
    table = values.setdefault(group, {}) if dot else values
    if not isinstance(table, dict):
        raise UsageError(f"{group} has no entries", f"write {group}=VALUE")
    name = entry if dot else group
    if not text:
        table.pop(name, None)
    elif not dot and group in ("modules", "setup", "sbatch", "srun", "ssh"):
        table[name] = yamlfile.parse(text, key) if text.startswith("[") else [text]
    else:
        # Text stays text (a time of 1:30 is not a sexagesimal number); pydantic reads numbers and yes/no from it.
        table[name] = text
