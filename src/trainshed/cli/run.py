"""`trainshed run` and `trainshed submit`: from a job file to a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainshed.cli.output import print_json
from trainshed.cli.request import Changes, with_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainshed.api import Client, Run
    from trainshed.api.remote import RemoteClient, RemoteRun
    from trainshed.engines.base import Request

Job = Annotated[Path, typer.Argument(help="job.yaml, the folder that holds it, or a Python script")]
Jobs = Annotated[list[Path], typer.Argument(help="job files, the folders that hold them, or scripts")]
Shape = Annotated[str | None, typer.Option("-j", "--shape", help="nodes x devices per node, e.g. 2x2")]
Parameter = Annotated[list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE for the script")]
Variable = Annotated[list[str] | None, typer.Option("-e", "--env", help="NAME=VALUE in its environment")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE of the job file")]
Label = Annotated[list[str] | None, typer.Option("-l", "--label", help="NAME=VALUE kept with the run")]
EngineName = Annotated[str, typer.Option("--engine", envvar="TRAINSHED_ENGINE", help="where nodes come from")]
Option = Annotated[list[str] | None, typer.Option("-o", "--option", help="NAME=VALUE for the engine")]
Emulate = Annotated[bool, typer.Option("--emulate", help="run an Ascend job on the CPU, marked as emulated")]
Launcher = Annotated[str | None, typer.Option("--launcher", help="instead of the job file's, or the guess")]
Environment = Annotated[
    str | None, typer.Option("--environment", help="Python environment: a name or a path")
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="make an environment that is missing")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print what would happen, and exit")]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


def run(
    context: typer.Context,
    job: Job,
    shape: Shape = None,
    param: Parameter = None,
    env: Variable = None,
    setting: Setting = None,
    label: Label = None,
    engine: EngineName = "local",
    option: Option = None,
    launcher: Launcher = None,
    environment: Environment = None,
    yes: Yes = False,
    emulate: Emulate = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Run a job in the foreground: its log is shown live, Ctrl-C stops it, the exit code mirrors it.

    With TRAINSHED_SERVER set, on that server.

    What follows `--` is passed to the script as it is, instead of the job file's `args`.
    """
    from trainshed.api import Run
    from trainshed.cli import target
    from trainshed.cli.attend import attend

    client = target.client()
    changes = Changes(context.obj, shape, param, env, setting, label, option, launcher, environment, emulate)
    request = changes.request(client, job, attached=True)
    if dry_run:
        _preview(client, engine, request, as_json)
        return
    began = time.monotonic()
    (started,) = with_environment(lambda: client.start(request, engine), yes)
    if not isinstance(started, Run):
        raise typer.Exit(target.attend_remote(started, as_json))
    raise typer.Exit(attend(started, as_json, began))


def submit(
    context: typer.Context,
    jobs: Jobs,
    shape: Shape = None,
    param: Parameter = None,
    env: Variable = None,
    setting: Setting = None,
    label: Label = None,
    engine: EngineName = "local",
    option: Option = None,
    launcher: Launcher = None,
    environment: Environment = None,
    yes: Yes = False,
    emulate: Emulate = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Start jobs in the background and print their run ids (of an array, all of them).

    With TRAINSHED_SERVER set, on that server.

    All job files are checked before the first job starts. With --json, a line for each job.
    What follows `--` is passed to the scripts as it is, instead of the job files' `args`.
    """
    from trainshed.api import Run
    from trainshed.cli import target

    client = target.client()
    changes = Changes(context.obj, shape, param, env, setting, label, option, launcher, environment, emulate)
    requests = [changes.request(client, job, attached=False) for job in jobs]
    if dry_run:
        for request in requests:
            _preview(client, engine, request, as_json)
        return
    started: Iterator[Sequence[Run | RemoteRun]]
    if len(requests) == 1:
        started = iter([with_environment(lambda: client.start(requests[0], engine), yes)])
    else:
        started = client.start_each(requests, engine)
    for runs in started:
        ids = [item.id for item in runs]
        if as_json:
            where = {"path": str(runs[0].path)} if isinstance(runs[0], Run) else {"url": runs[0].url}
            shown = {"id": ids[0]} | where | ({"array": ids} if len(ids) > 1 else {})
            print(json.dumps(shown), flush=True)
        else:
            print("\n".join(ids), flush=True)


def _preview(client: Client | RemoteClient, engine: str, request: Request, as_json: bool) -> None:
    from trainshed.plan.model import Plan
    from trainshed.plan.render import render

    found = client.plan(request, engine)
    plan, text = (found, "") if isinstance(found, Plan) else (found.plan, found.text)
    if as_json:
        print_json(plan.to_json() | ({"request": text} if text else {}))
    else:
        print(text + render(plan), end="")
