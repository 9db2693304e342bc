"""`stop` and `rm`: ending runs and removing what is left of them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainshed.cli.output import print_json
from trainshed.errors import TrainshedError, UsageError

Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
_LONGEST_STOP = 3600.0


def stop(
    runs: Annotated[list[str], typer.Argument(help="run ids, or `last`")],
    reason: Annotated[str, typer.Option(help="recorded with the run")] = "stopped by `trainshed stop`",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not wait for the end")] = False,
    as_json: Json = False,
) -> None:
    """Stop runs and wait until they have ended. Stopped a second time, a run is killed after its grace."""
    from trainshed.cli import target

    client = target.client()
    found = [client.get(name) for name in runs]
    for run in found:
        run.stop(reason)
    states = [run.refresh() if no_wait else run.wait(_LONGEST_STOP) for run in found]
    if as_json:
        print_json([state.to_json() for state in states])
        return
    for state in states:
        print(f"{state.id}: {state.state.value}")


def rm(
    names: Annotated[list[str] | None, typer.Argument(help="run ids, or URLs of objects")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="all runs that have ended")] = False,
    recursive: Annotated[bool, typer.Option("-r", "--recursive", help="everything below a URL")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="also runs that cannot be read, or whose store or site cannot be reached"
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove ended runs, or objects by URL."""
    urls = [name for name in names or () if "://" in name]
    if urls:
        from trainshed.cli.files import rm_url

        for url in urls:
            rm_url(url, recursive=recursive, as_json=as_json)
    chosen = [name for name in names or () if "://" not in name]
    if not chosen and not urls and not ended:
        raise UsageError("rm: no runs given", "give run ids, URLs or --ended")
    if not chosen and not ended:
        return
    from trainshed.cli import target

    client = target.client()
    found = [client.get(name) for name in chosen]
    if ended:
        found += [client.get(s.id) for s in client.summaries() if s.state.is_final]
    removed, problems = [], []
    for run in found:
        try:
            run.remove(force)
            removed.append(run.id)
        except TrainshedError as error:
            if not ended:
                raise
            problems.append(f"{run.id}: {error.message}")
    if as_json:
        print_json(removed)
    elif ended:
        print(f"removed {len(removed)} run{'' if len(removed) == 1 else 's'}")
    for problem in problems:
        print(f"not removed: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)
