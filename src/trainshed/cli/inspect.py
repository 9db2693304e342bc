"""`ps`, `show`, `logs`, `wait`: reading runs. They need no server; the run directory is the truth."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from trainshed.cli.output import clock, prefix, print_json, print_table, since
from trainshed.engines._asking import state_of
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Kind
from trainshed.runs.summary import phases

Run = Annotated[str, typer.Argument(help="run id, the beginning of one, or `last`")]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


def ps(
    show_all: Annotated[bool, typer.Option("-a", "--all", help="ended runs too")] = False,
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    found = [state_of(run) for run in Runs.default().all()]
    shown = [summary for summary in found if show_all or not summary.state.is_final]
    if as_json:
        print_json([summary.to_json() for summary in shown])
        return
    rows = [
        [s.id, s.state.value, s.engine, s.shape, clock(s.submitted), since(s.started, s.ended), s.reason[:60]]
        for s in shown
    ]
    print_table(["RUN", "STATE", "ENGINE", "SHAPE", "SUBMITTED", "RAN", "REASON"], rows)


def show(run: Run, as_json: Json = False) -> None:
    """Everything known of a run."""
    found = Runs.default().find(run)
    summary = state_of(found)
    spent, ranks = phases(found), _processes(found)
    if as_json:
        print_json(summary.to_json() | {"path": str(found.path), "phases": spent, "processes": ranks})
        return
    print(f"{summary.id}: {summary.state.value} ({summary.state.meaning})")
    if summary.reason:
        print(f"reason: {summary.reason}")
    failure = summary.outcome.failure if summary.outcome else None
    for line in failure.last_lines if failure else ():
        print(f"    {line}")
    if summary.emulated:
        print("EMULATED on the CPU: times and accuracy say nothing about real devices")
    print(f"engine {summary.engine}, shape {summary.shape}, attempt {summary.attempt}")
    print(f"submitted {clock(summary.submitted)}, ended {clock(summary.ended) or 'not yet'}")
    names = list(dict.fromkeys(name for node in spent.values() for name in node))
    rows = [
        [f"node {i}", *(f"{node.get(n, 0):.2f} s" if n in node else "" for n in names)]
        for i, node in spent.items()
    ]
    if names:
        print_table(["PHASES", *names], rows)
    print_table(
        ["PROCESS", "NODE", "PID", "ENDED"],
        [[str(r[key]) for key in ("process", "node", "pid", "ended")] for r in ranks],
    )
    print(f"directory {found.path}")


def logs(
    run: Run,
    follow_it: Annotated[bool, typer.Option("-f", "--follow", help="until the run ends")] = False,
    rank: Annotated[int | None, typer.Option("--rank", help="only this rank")] = None,
    node: Annotated[int | None, typer.Option("--node", help="only this node")] = None,
    as_json: Json = False,
) -> None:
    """Print the logs of a run's processes."""
    from trainshed.runs.logs import follow, log_files

    found = Runs.default().find(run)
    files = log_files(found, rank, node)
    if not files and not follow_it:
        raise TrainshedError(
            f"run {found.id} has no such log", f"`trainshed show {found.id}` lists its processes"
        )
    ended = (lambda: state_of(found).state.is_final) if follow_it else (lambda: True)
    plain = rank is not None
    for line in follow(found, ended, rank, node):
        if as_json:
            import json

            print(
                json.dumps(
                    {"node": line.node, "process": line.process, "text": line.text}, ensure_ascii=False
                )
            )
        else:
            sys.stdout.write(line.text + "\n" if plain else f"{prefix(line.process, 7)}{line.text}\n")
    sys.stdout.flush()


def wait(
    run: Run,
    timeout: Annotated[float | None, typer.Option(help="seconds; then exit code 75")] = None,
    as_json: Json = False,
) -> None:
    """Wait for a run to end."""
    found = Runs.default().find(run)
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = 0.05
    while not (summary := state_of(found)).state.is_final and (
        deadline is None or time.monotonic() < deadline
    ):
        time.sleep(pause)
        pause = min(pause * 1.2, 1.0)
    if as_json:
        print_json(summary.to_json())
    else:
        print(f"{summary.id}: {summary.state.value}" + (f": {summary.reason}" if summary.reason else ""))
    raise typer.Exit(summary.exit_code)


def _processes(run: RunDirectory) -> list[dict[str, object]]:
    from trainshed.runs.outcome import words_of

    result: dict[tuple[int, str], dict[str, object]] = {}
    for index in run.node_indexes():
        for event in run.node_events(index):
            if event.kind is Kind.STARTED:
                name = event.data["process"]
                result[index, name] = {"process": name, "node": index, "pid": event.data["pid"], "ended": ""}
            elif event.kind is Kind.EXITED:
                found = result[index, event.data["process"]]
                found["returncode"], found["ended"] = (
                    event.data["returncode"],
                    words_of(event.data["returncode"]),
                )
    return list(result.values())
