"""`trainshed run` and `trainshed submit`: from a job file to a run."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from trainshed import axes
from trainshed.cli.output import prefix, print_json, since
from trainshed.engines._asking import state_of
from trainshed.errors import UsageError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.summary import Summary

Job = Annotated[Path, typer.Argument(help="job.yaml, or the folder that holds it")]
Jobs = Annotated[list[Path], typer.Argument(help="job files, or the folders that hold them")]
Shape = Annotated[str | None, typer.Option("-j", "--shape", help="nodes x devices a node, e.g. 2x2")]
Parameter = Annotated[list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE for the script")]
Variable = Annotated[list[str] | None, typer.Option("-e", "--env", help="NAME=VALUE in its environment")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE of the job file")]
EngineName = Annotated[str, typer.Option("--engine", envvar="TRAINSHED_ENGINE", help="where nodes come from")]
Option = Annotated[list[str] | None, typer.Option("-o", "--option", help="NAME=VALUE for the engine")]
Emulate = Annotated[bool, typer.Option("--emulate", help="run an Ascend job on the CPU, marked as emulated")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print what would happen, and do none of it")]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


def run(
    job: Job,
    shape: Shape = None,
    param: Parameter = None,
    env: Variable = None,
    setting: Setting = None,
    engine: EngineName = "local",
    option: Option = None,
    emulate: Emulate = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Run a job in the foreground: its log is shown live, Ctrl-C stops it, the exit code mirrors it."""
    request = _request(job, shape, param, env, setting, option, emulate, attached=True)
    member = axes.load("engine", engine)
    if dry_run:
        _preview(member, request, as_json)
        return
    began = time.monotonic()
    started = member.submit(request)
    raise typer.Exit(attend(member, started, as_json, began))


def submit(
    jobs: Jobs,
    shape: Shape = None,
    param: Parameter = None,
    env: Variable = None,
    setting: Setting = None,
    engine: EngineName = "local",
    option: Option = None,
    emulate: Emulate = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Start jobs in the background and print their run ids (of an array, all of them).

    All job files are checked before the first job starts. With --json, a line for each job.
    """
    requests = [_request(job, shape, param, env, setting, option, emulate, attached=False) for job in jobs]
    member = axes.load("engine", engine)
    if dry_run:
        for request in requests:
            _preview(member, request, as_json)
        return
    for started in member.submit_each(requests) if len(requests) > 1 else [member.submit(requests[0])]:
        every = started.array()
        if as_json:
            told = {"id": started.id, "path": str(started.path)} | ({"array": every} if every else {})
            print(json.dumps(told), flush=True)
        else:
            print("\n".join(every or [started.id]), flush=True)


def attend(engine: Any, started: RunDirectory, as_json: bool, began: float) -> int:
    """Show a run's log until it ends, pass Ctrl-C on to it, and say how it ended."""
    from trainshed.runs.logs import follow

    wanted: list[float] = []

    def stop(_number: int, _frame: object) -> None:
        wanted.append(time.monotonic())
        if len(wanted) == 1:
            engine.stop(started, "stopped with Ctrl-C")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    if not as_json:
        print(f"run {started.id}", file=sys.stderr)
        planned = (started.path / "plan.json").exists()  # a queue plans once it has nodes
        for note in started.plan_json()["notes"] if planned else ():
            print(f"note: {note}", file=sys.stderr)
    width = 7
    write = sys.stdout.write
    for line in follow(started, lambda: state_of(started).state.is_final):
        if not as_json:
            width = max(width, len(line.process))
            write(f"{prefix(line.process, width)}{line.text}\n")
            sys.stdout.flush()
    summary = state_of(started)
    if as_json:
        print_json(summary.to_json() | {"path": str(started.path)})
    else:
        print(_ending(started, summary, time.monotonic() - began), file=sys.stderr)
    return summary.exit_code


def _ending(run: RunDirectory, summary: Summary, seconds: float) -> str:
    """The last words: the first failure leads, with the failing rank's own."""
    notes = run.notes()
    failure = summary.outcome.failure if summary.outcome else None
    if failure is None:
        emulated = " (EMULATED on the CPU)" if summary.emulated else ""
        lines = [f"{summary.state.value}{emulated} in {seconds:.1f} s; logs and results: {run.path}"]
        return "\n".join(lines + [f"  note: {note}" for note in notes])
    lines = [f"{summary.state.value}: {failure.reason}"]
    lines += [f"    {line}" for line in failure.last_lines]
    if failure.log:
        lines.append(f"  its log: {run.path / failure.log}")
    lines += [f"  {note}" for note in notes if note != failure.reason]
    lines.append(f"  ran {since(summary.submitted, summary.ended)}; all logs: {run.path}")
    return "\n".join(lines)


def _preview(engine: Any, request: Any, as_json: bool) -> None:
    from trainshed.plan.render import render

    preview = engine.preview(request)
    if as_json:
        print_json(preview.plan.to_json() | ({"request": preview.request} if preview.request else {}))
    else:
        print(preview.request + render(preview.plan), end="")


def _request(
    job: Path,
    shape: str | None,
    parameters: list[str] | None,
    variables: list[str] | None,
    settings: list[str] | None,
    options: list[str] | None,
    emulate: bool,
    attached: bool,
) -> Any:
    import yaml

    from trainshed.engines.base import Request
    from trainshed.spec.load import load_job

    overrides: dict[str, Any] = {k: yaml.safe_load(v) for k, v in _pairs("--set", settings).items()}
    if shape:
        overrides["resources"] = shape
    if parameters:
        overrides["parameters"] = _pairs("--param", parameters)
    if variables:
        overrides["env"] = _pairs("--env", variables)
    spec = load_job(job, overrides)
    return Request(spec, emulate=emulate, attached=attached, options=_pairs("--option", options))


def _pairs(flag: str, items: list[str] | None) -> dict[str, str]:
    result = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"{flag} {item!r} is not NAME=VALUE", f"write {flag} {name or 'NAME'}=VALUE")
        result[name] = value
    return result
