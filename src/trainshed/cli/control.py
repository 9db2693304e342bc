"""`stop` and `rm`: ending runs and removing what is left of them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from trainshed.cli.output import print_json
from trainshed.engines._asking import engine_of, state_of
from trainshed.errors import UsageError
from trainshed.runs.directory import Runs

Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


def stop(
    runs: Annotated[list[str], typer.Argument(help="run ids, or `last`")],
    reason: Annotated[str, typer.Option(help="recorded with the run")] = "stopped by `trainshed stop`",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not wait for the end")] = False,
    as_json: Json = False,
) -> None:
    """Stop runs and wait until they have ended."""
    found = [Runs.default().find(name) for name in runs]
    told = [run for run in found if not state_of(run).state.is_final]
    for run in told:
        engine_of(run).stop(run, reason)
    deadline = time.monotonic() + 3600
    while not no_wait and time.monotonic() < deadline and any(not state_of(r).state.is_final for r in told):
        time.sleep(0.1)
    states = [state_of(run) for run in found]
    if as_json:
        print_json([state.to_json() for state in states])
        return
    for state in states:
        print(f"{state.id}: {state.state.value}")


def rm(
    names: Annotated[list[str] | None, typer.Argument(help="run ids, or URLs of objects")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="all runs that have ended")] = False,
    recursive: Annotated[bool, typer.Option("-r", "--recursive", help="everything below a URL")] = False,
    as_json: Json = False,
) -> None:
    """Remove ended runs, or objects by URL."""
    urls = [name for name in names or () if "://" in name]
    if urls:
        from trainshed.cli.files import rm_url

        for url in urls:
            rm_url(url, recursive=recursive, as_json=as_json)
    store = Runs.default()
    found = [store.find(name) for name in names or () if "://" not in name]
    if ended:
        found += [run for run in store.all() if state_of(run).state.is_final]
    if not found and not urls and not ended:
        raise UsageError("rm: nothing was named", "give run ids, URLs or --ended")
    busy = [run.id for run in found if not state_of(run).state.is_final]
    if busy:
        raise UsageError(f"rm: {', '.join(busy)} has not ended", "stop it first with `trainshed stop`")
    for run in found:
        engine_of(run).forget(run)
        store.remove(run)
    if as_json:
        print_json([run.id for run in found])
