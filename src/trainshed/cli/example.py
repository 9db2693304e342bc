"""`trainshed example list|copy`: jobs that run as they are, to begin with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from trainshed.cli.groups import command_group
from trainshed.cli.output import print_json, print_table
from trainshed.errors import NotFoundError, UsageError

app = command_group("List and copy the examples.")

JsonOption = Annotated[bool, typer.Option("--json", help="machine-readable output")]


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the examples: what each is, and the environment it needs."""
    from trainshed import shipped
    from trainshed.spec.load import load_fields

    rows = []
    for name, folder in shipped.examples().items():
        fields = load_fields(folder / "job.yaml")
        rows.append(
            (name, str(fields.get("resources", "1x1")), fields.get("environment") or "", _title(folder))
        )
    if as_json:
        print_json([dict(zip(("name", "shape", "environment", "title"), row, strict=True)) for row in rows])
    else:
        print_table(("EXAMPLE", "SHAPE", "ENVIRONMENT", "WHAT IT IS"), rows)


@app.command()
def copy(
    name: Annotated[str, typer.Argument(help="as `trainshed example list` shows")],
    target: Annotated[Path, typer.Argument(help="folder in which the example's folder is created")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Copy an example, and the small data it trains on, into a folder of yours."""
    from trainshed import shipped
    from trainshed.spec.near import did_you_mean

    known = shipped.examples()
    if name not in known:
        near = did_you_mean(name, known)
        raise NotFoundError(
            f"no such example: {name!r}", near or "`trainshed example list` shows what there is"
        )
    made = target / name
    if made.exists():
        raise UsageError(f"{made} exists", "choose another folder")
    made.parent.mkdir(parents=True, exist_ok=True)
    skipped = shutil.ignore_patterns("__pycache__", "digits")
    shutil.copytree(known[name], made, ignore=skipped)
    shutil.copytree(shipped.example_data(), target / "data", ignore=skipped, dirs_exist_ok=True)
    if as_json:
        print_json({"path": str(made), "data": str(target / "data")})
    else:
        print(f"{made}\n{target / 'data'} (what it trains on)\nrun it: trainshed run {made}")


def _title(folder: Path) -> str:
    """The heading of its README."""
    first = (folder / "README.md").read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("# ")
