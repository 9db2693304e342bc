"""Where commands work: on this machine, or on the server that TRAINSHED_SERVER names."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from trainshed.cli.output import clock, prefix, print_json
from trainshed.errors import UsageError

if TYPE_CHECKING:
    from trainshed.api import Client
    from trainshed.api.remote import RemoteClient, RemoteRun


def remote() -> RemoteClient | None:
    """The server's client, if a server is named.

    TRAINSHED_TOKEN says who is there, TRAINSHED_TEAM for which team; TRAINSHED_CERTIFICATE (a file) or
    TRAINSHED_FINGERPRINT (SHA-256) which certificate is trusted.
    """
    url = os.environ.get("TRAINSHED_SERVER", "")
    if not url:
        return None
    token = os.environ.get("TRAINSHED_TOKEN", "")
    if not token:
        raise UsageError(
            "TRAINSHED_SERVER is set, but TRAINSHED_TOKEN is not", "set it to a personal token of the server"
        )
    from trainshed.api.remote import RemoteClient

    return RemoteClient(
        url,
        token,
        team=os.environ.get("TRAINSHED_TEAM") or None,
        certificate=os.environ.get("TRAINSHED_CERTIFICATE") or None,
        fingerprint=os.environ.get("TRAINSHED_FINGERPRINT") or None,
    )


def client() -> Client | RemoteClient:
    found = remote()
    if found is not None:
        return found
    from trainshed.api import Client

    return Client()


def attend_remote(run: RemoteRun, as_json: bool) -> int:
    """Show a run's log until it ends, pass Ctrl-C on to it, and say how it ended."""

    def stop(_number: int, _frame: object) -> None:
        os.write(2, b"\nstopping: ranks get SIGTERM and the job's grace, then outputs are saved\n")
        run.stop("stopped with Ctrl-C")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    if not as_json:
        print(f"run {run.id} on {run.url}", file=sys.stderr)
    width = 7
    for line in run.logs(follow=True):
        if not as_json:
            width = max(width, len(line.process))
            sys.stdout.write(f"{prefix(line.process, width)}{line.text}\n")
            sys.stdout.flush()
    summary = run.wait()
    if as_json:
        print_json(summary.to_json() | {"url": run.url})
    else:
        words = f": {summary.reason}" if summary.reason else ""
        print(f"{summary.state.value}{words}; logs and results: {run.url}", file=sys.stderr)
    return summary.exit_code


def show_remote(run: RemoteRun, as_json: bool) -> None:
    """Everything that the server tells of a run."""
    found = run.details()
    outputs = run.outputs()
    if as_json:
        print_json(found | {"url": run.url, "outputs": outputs})
        return
    print(f"{found['id']}: {found['state']}")
    if found["reason"]:
        print(f"reason: {found['reason']}")
    for line in found.get("failure", {}).get("last_lines", ()):
        print(f"    {line}")
    print(f"owner {found['owner']}, team {found['team']}")
    print(f"engine {found['engine']}, shape {found['shape']}, attempt {found['attempt']}")
    if found["labels"]:
        print(f"labels {', '.join(f'{name}={value}' for name, value in sorted(found['labels'].items()))}")
    print(f"submitted {clock(found['submitted'])}, ended {clock(found['ended']) or 'not yet'}")
    for item in outputs[:20]:
        print(f"output {item['path']} ({item['size']} bytes)")
    for note in found["notes"]:
        print(f"note: {note}")
    print(run.url)
