"""`ps`, `show`, `logs`, `wait`: reading runs. They need no server; the run directory is the truth."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainshed.cli.output import (
    clock,
    prefix,
    print_json,
    print_json_list,
    print_table,
    printable,
    printable_lines,
    since,
)
from trainshed.errors import NotFoundError, TrainshedError

if TYPE_CHECKING:
    from trainshed.api import Run
    from trainshed.runs.directory import RunDirectory
    from trainshed.runs.summary import Summary

RunId = Annotated[str, typer.Argument(help="run id, the beginning of one, or `last`")]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
_REASON = 60
"""Characters of a reason in a list; `show` has all of it."""


def ps(
    show_all: Annotated[bool, typer.Option("-a", "--all", help="ended runs too")] = False,
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    from trainshed.cli import target

    shown = (s for s in target.client().summaries() if show_all or not s.state.is_final)
    if as_json:
        print_json_list(summary.to_json() for summary in shown)
        return
    print_table(
        ["RUN", "STATE", "ENGINE", "SHAPE", "SUBMITTED", "RAN", "REASON"],
        (
            [s.id, s.state.value, s.engine, s.shape, clock(s.submitted), since(s.started, s.ended), _brief(s)]
            for s in shown
        ),
    )


def show(run: RunId, as_json: Json = False) -> None:
    """Everything known of a run."""
    from trainshed.cli import target

    if server := target.remote():
        target.show_remote(server.get(run), as_json)
        return
    found = _find(run)
    summary, spent, ranks, notes, problem = _inspect(found)
    outputs = found.outputs()
    homes: list[str] = []
    try:
        homes = _homes(found)
    except TrainshedError as error:
        problem = problem or error.message
    if as_json:
        shown = summary.to_json() | {"path": str(found.path), "phases": spent, "processes": ranks}
        left = {"homes": homes} if homes else {}
        shown["outputs"] = [{"name": name, "location": where} for name, where in outputs]
        print_json(shown | left | {"notes": notes} | ({"problem": problem} if problem else {}))
        return
    print(f"{summary.id}: {summary.state.value} ({summary.state.meaning})")
    if summary.reason:
        print(f"reason: {printable_lines(summary.reason)}")
    for line in summary.failure.last_lines if summary.failure else ():
        print(f"    {line}")
    if problem:
        print(f"some of its record cannot be read: {printable(problem)}")
    for hint in found.advice() if summary.failure else ():
        print(f"hint: {hint}")
    if summary.emulated:
        print("EMULATED on the CPU: times and accuracy say nothing about real devices")
    print(printable(f"engine {summary.engine}, shape {summary.shape}, attempt {summary.attempt}"))
    if summary.labels:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(summary.labels.items()))
        print(f"labels {printable(labels)}")
    print(f"submitted {clock(summary.submitted)}, ended {clock(summary.ended) or 'not yet'}")
    names = list(dict.fromkeys(name for node in spent.values() for name in node))
    rows = [
        [f"node {i}", *(f"{node.get(n, 0):.2f} s" if n in node else "" for n in names)]
        for i, node in spent.items()
    ]
    if names:
        print_table(["PHASES", *names], rows)
    print_table(
        ["PROCESS", "NODE", "PID", "LAST WROTE", "ENDED"],
        [[r["process"], str(r["node"]), str(r["pid"]), _wrote(r), r["ended"]] for r in ranks],
    )
    for name, where in outputs:
        print(printable(f"output {name}: {where}"))
    for note in notes:
        print(f"note: {printable_lines(note)}")
    for home in homes:
        print(f"home {printable(home)} (what the job left in ~)")
    print(f"directory {found.path}")


def logs(
    run: RunId,
    follow_it: Annotated[bool, typer.Option("-f", "--follow", help="until the run ends")] = False,
    rank: Annotated[int | None, typer.Option("--rank", help="only this rank")] = None,
    node: Annotated[int | None, typer.Option("--node", help="only this node")] = None,
    tail: Annotated[
        int | None, typer.Option("-n", "--tail", min=0, help="only the last N lines of each process")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("-t", "--timestamps", help="prefix each line with the time it was first seen")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the logs of a run's processes, merged by time.

    Ranks write their logs themselves; their node's agent looks at them once a second. The time of a line is
    when it was first seen, so up to a second late, by the clock of its node.
    """
    from trainshed.api import Run
    from trainshed.cli import target
    from trainshed.runs.logs import log_files

    server = target.remote()
    found = server.get(run) if server else _find(run)
    if not follow_it and isinstance(found, Run):
        found.refresh()
        if not log_files(found.directory, rank, node):
            raise TrainshedError(
                f"run {found.id} has no such log", f"`trainshed show {found.id}` lists its processes"
            )
    plain = rank is not None
    for line in found.logs(follow=follow_it, rank=rank, node=node, last=tail):
        if as_json:
            data = {"node": line.node, "process": line.process, "text": line.text, "time": line.time}
            print(json.dumps(data, ensure_ascii=False))
        else:
            stamp = f"{clock(line.time)} " if timestamps else ""
            begin = "" if plain else prefix(line.process, 7)
            sys.stdout.write(f"{stamp}{begin}{line.text}\n")
        if follow_it:
            sys.stdout.flush()
    sys.stdout.flush()


def wait(
    run: RunId,
    timeout: Annotated[float | None, typer.Option(help="seconds; then exit code 75")] = None,
    as_json: Json = False,
) -> None:
    """Wait for a run to end."""
    from trainshed.cli import target

    summary = target.client().get(run).wait(timeout)
    if as_json:
        print_json(summary.to_json())
    else:
        print(
            f"{summary.id}: {summary.state.value}"
            + (f": {printable_lines(summary.reason)}" if summary.reason else "")
        )
    raise typer.Exit(summary.exit_code)


def _brief(summary: Summary) -> str:
    reason = " ".join(summary.reason.split())
    return reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…"


def _homes(found: Run) -> list[str]:
    """The folders in which what the job left in its home is kept."""
    try:
        nodes = found.directory.plan_json()["nodes"]
        kept = dict.fromkeys(str(node.get("kept_home") or "") for node in nodes)
    except (NotFoundError, KeyError, TypeError, AttributeError):
        return []
    return [home for home in kept if home and Path(home).is_dir()]


def _wrote(process: dict[str, Any]) -> str:
    """When a process last wrote to its log: how long ago while it runs, as one that hangs is silent."""
    if process["last_wrote"] is None:
        return "nothing"
    return clock(process["last_wrote"]) if process["ended"] else f"{since(process['last_wrote'])} ago"


def _find(run: str) -> Run:
    from trainshed.api import Client

    return Client().get(run)


def _inspect(
    run: Run,
) -> tuple[Summary, dict[int, dict[str, float]], list[dict[str, Any]], list[str], str]:
    """State, phases, processes and notes of a run, and why some of them cannot be read."""
    from trainshed.runs.events import UnreadableRunError
    from trainshed.runs.summary import phases, unreadable

    try:
        summary = run.refresh()
    except UnreadableRunError as error:
        return unreadable(run.directory, error), {}, [], [], ""
    directory = run.directory
    try:
        return summary, phases(directory), _processes(directory), directory.notes(), ""
    except UnreadableRunError as error:
        return summary, {}, [], [], error.message


def _processes(run: RunDirectory) -> list[dict[str, Any]]:
    from trainshed.runs.events import ProcessExited, ProcessStarted
    from trainshed.runs.logtimes import last_written
    from trainshed.runs.outcome import describe_exit

    result: dict[tuple[int, str], dict[str, Any]] = {}
    for event in run.events("node-"):
        body, number = event.body, event.writer.split("-")[1]
        if not (number.isascii() and number.isdigit()):
            continue  # no agent writes such a file
        node = int(number)
        if isinstance(body, ProcessStarted):
            result[node, body.process] = {
                "process": body.process, "node": node, "pid": body.pid, "ended": "",
                "last_wrote": last_written(run.log(node, body.process)),
            }  # fmt: skip
        elif isinstance(body, ProcessExited) and (found := result.get((node, body.process))):
            found["returncode"], found["ended"] = body.returncode, describe_exit(body.returncode)
    return list(result.values())
