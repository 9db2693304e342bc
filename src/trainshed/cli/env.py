"""`trainshed env create|add|list|show|rm`: framework environments on the command line."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainshed.cli.groups import command_group
from trainshed.cli.output import print_json, print_table

if TYPE_CHECKING:
    from trainshed.environments import BuildProgress, Environment, ProgressCallback

app = command_group("Make, list and remove framework environments.")

_REPEAT_SECONDS = 5.0

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="As `trainshed env list` shows.")],
    packages: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="Install this too, e.g. timm==1.0.9."),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="With OpenCV, pandas, scikit-learn, matplotlib, tensorboard and more."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Make it again even if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make environments; one that is there and up to date only gets what it lacks."""
    from trainshed import environments
    from trainshed.environments.recipes import recipe_for

    for name in names:
        recipe_for(name)  # a wrong name is reported before the first download
    progress = progress_printer()
    made = [
        environments.create(name, progress, force=force, full=full, packages=packages or ()) for name in names
    ]
    if as_json:
        print_json([_as_dict(environment) for environment in made])
    else:
        for environment in made:
            print(f"{environment.name} {environment.prefix}")


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="As `trainshed env list` shows.")],
    packages: Annotated[list[str], typer.Argument(metavar="PACKAGE...", help="As pip takes them.")],
    as_json: JsonOption = False,
) -> None:
    """Install packages into an environment; what is in it already keeps its version."""
    from trainshed import environments

    environment = environments.add(name, packages, progress_printer())
    if as_json:
        print_json(_as_dict(environment))
    else:
        print(f"{environment.name} {environment.prefix}: added {', '.join(packages)}")


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List every environment that can be made, and which are ready."""
    from trainshed import environments

    rows = environments.listing()
    if as_json:
        print_json([asdict(row) | {"prefix": str(row.prefix)} for row in rows])
        return
    print_table(
        ("NAME", "STATE", "MB", "MADE IN", "FOLDER"),
        [
            (
                row.name,
                row.state,
                "" if row.megabytes is None else f"{row.megabytes:.0f}",
                "" if row.seconds is None else f"{row.seconds:.0f} s",
                str(row.prefix),
            )
            for row in rows
        ],
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="An environment's name, or a virtual environment's folder.")],
    as_json: JsonOption = False,
) -> None:
    """Show where an environment is and what is installed in it."""
    from trainshed import environments

    environment = environments.resolve(name, os.environ)
    if as_json:
        print_json(_as_dict(environment))
        return
    print(f"name       {environment.name}\nframework  {environment.framework or 'none known'}")
    print(f"python     {environment.python}")
    if environment.full or environment.added:
        print(f"added      {', '.join((*(('full',) if environment.full else ()), *environment.added))}")
    for package, version in environment.versions.items():
        print(f"  {package} {version}")


@app.command()
def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    as_json: JsonOption = False,
) -> None:
    """Remove environments. Their wheels stay, so making them again needs no network."""
    from trainshed import environments

    removed = [str(environments.remove(name)) for name in names]
    if as_json:
        print_json(removed)
    else:
        print("\n".join(f"removed {prefix}" for prefix in removed))


def _as_dict(environment: Environment) -> dict[str, Any]:
    return {
        "name": environment.name,
        "framework": environment.framework,
        "prefix": str(environment.prefix),
        "python": str(environment.python),
        "versions": dict(environment.versions),
        "full": environment.full,
        "added": list(environment.added),
    }


def progress_printer() -> ProgressCallback:
    """News of the making on standard error: one line on a terminal, few lines elsewhere."""
    return _status_line() if sys.stderr.isatty() else _lines()


def _lines() -> ProgressCallback:
    """For logs: a line for every new step, and now and then while one lasts."""
    last = ("", "")
    spoken = 0.0

    def tell(news: BuildProgress) -> None:
        nonlocal last, spoken
        step = (news.environment, news.step)
        if step != last or news.seconds >= spoken + _REPEAT_SECONDS:
            last, spoken = step, news.seconds
            print(news, file=sys.stderr, flush=True)

    return tell


def _status_line() -> ProgressCallback:
    """For a terminal: one line, written over until the environment is ready."""

    def tell(news: BuildProgress) -> None:
        end = "\n" if news.step == "ready" else ""
        print(f"\r\033[K{news}", file=sys.stderr, flush=True, end=end)

    return tell
