"""A process that reads a home's runs over and over until told to end, and fails at the first thing that is wrong.

Wrong is: a command that fails or complains, a run that cannot be read, a final state that changes.
usage: watcher.py ps|show|logs|reconcile FOLDER; it ends once FOLDER/over exists and writes FOLDER/<kind>.json
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainshed import Client
from trainshed.cli.main import _main
from trainshed.runs.states import RunState

ended: dict[str, str] = {}


def command(*argv: str) -> str:
    """Run a command line of trainshed in this process, which saves a start of Python per look."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _main(list(argv))
    assert code == 0 and not err.getvalue(), (argv, code, out.getvalue(), err.getvalue())
    return out.getvalue()


def note(run: str, state: RunState, reason: str, problem: str = "") -> None:
    assert state is not RunState.UNREADABLE and not problem, (run, state, reason, problem)
    if state.is_final or run in ended:
        told = f"{state.value}: {reason}"
        assert ended.setdefault(run, told) == told, f"{run}: {ended[run]!r} became {told!r}"


def see(shown: dict[str, Any]) -> None:
    note(shown["id"], RunState(shown["state"]), shown["reason"], shown.get("problem", ""))


def list_runs() -> None:
    for shown in json.loads(command("ps", "-a", "--json")):
        see(shown)


def show_runs() -> None:
    for run in unseen():
        see(json.loads(command("show", run, "--json")))


def follow_runs() -> None:
    for run in unseen():
        for line in command("logs", "-f", "--json", run).splitlines():
            text = json.loads(line)["text"]
            assert text == "up" or "Killed" in text, line  # what the shell says of its child's end
        see(json.loads(command("show", run, "--json")))
        assert run in ended, f"{run}: its log was followed to the end, and it has none"


def reconcile_runs() -> None:
    client = Client()
    for summary in client.refresh(client.runs()):
        note(summary.id, summary.state, summary.reason)


def unseen() -> Iterator[str]:
    """Runs whose end was not seen; the newest first, since they change most."""
    return (run.id for run in Client().runs() if run.id not in ended)


KINDS: dict[str, Callable[[], None]] = {
    "ps": list_runs,
    "show": show_runs,
    "logs": follow_runs,
    "reconcile": reconcile_runs,
}


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    looks = 0
    while True:
        over = (folder / "over").exists()  # asked before the last look, which then sees every end
        KINDS[kind.partition("-")[0]]()
        looks += 1
        part = folder / f"{kind}.part"
        part.write_text(json.dumps({"looks": looks, "ended": ended}))
        part.replace(folder / f"{kind}.json")
        if over:
            return


if __name__ == "__main__":
    os.nice(10)  # it shall look often, and not keep the runs from going on
    main()
