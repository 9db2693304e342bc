"""`trainshed serve`: the platform server."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainshed.cli import process
from trainshed.cli.output import print_json
from trainshed.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from trainshed.server.serve import Started

_UNIT = """\
[Unit]
Description=Trainshed
After=network-online.target

[Service]
ExecStart={command}
Environment=TRAINSHED_HOME={home}
User={user}
Restart=on-failure
# Runs go on without the server: only its own process is stopped.
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def serve(
    host: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0: all")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="for http; 0: any free one")] = 8470,
    https_port: Annotated[int, typer.Option(min=0, max=65535, help="for https; 0: any free one")] = 8471,
    database: Annotated[
        str | None, typer.Option(help="postgresql://…; without it SQLite in the home")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="make the index of runs again first")] = False,
    install_unit: Annotated[
        Path | None, typer.Option(help="write a systemd unit to this file, and start nothing")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Serve Trainshed to a team: accounts, a queue, an API. Stopping it ends no run.

    The first start makes an administrator and shows its password once.
    """
    from trainshed.environments import environments_directory

    home = process.home()
    if install_unit is not None:
        _install(install_unit, home, host, port, https_port, database)
        return
    try:
        from trainshed.server.serve import ServeOptions
        from trainshed.server.serve import serve as run
    except ImportError as error:
        raise RefusedError(
            f"the server needs packages that are not installed: {error.name}",
            "pip install 'trainshed[server]'",
        ) from error
    options = ServeOptions(
        home, host, port, https_port, database, environments_directory(os.environ), rebuild
    )
    run(options, lambda started: _announce(started, as_json))


def _announce(started: Started, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "http": started.http,
                "https": started.https,
                "certificate": str(started.certificate),
                "fingerprint": started.fingerprint,
                "admin_password": started.first_password,
            }
        )
    else:
        print(f"Trainshed on {started.https} and {started.http}")
        print(f"certificate {started.certificate}")
        print(f"  SHA-256 {started.fingerprint}")
        if started.first_password:
            print(f"log in as admin with the password {started.first_password} (shown this once)")
        print(
            "note: jobs run as the user of this process: give accounts only to people whom you trust with it"
        )
    sys.stdout.flush()


def _install(path: Path, home: Path, host: str, port: int, https_port: int, database: str | None) -> None:
    words = [sys.executable, "-m", "trainshed.cli.main", "serve", "--host", host, "--port", str(port)]
    words += ["--https-port", str(https_port)] + (["--database", database] if database else [])
    if wrong := [word for word in (*words, str(home)) if any(c.isspace() or c in "%\"'\\" for c in word)]:
        raise UsageError(f"a systemd unit cannot hold {wrong[0]!r}", "use paths without spaces and quotes")
    text = _UNIT.format(command=" ".join(words), home=home, user=getpass.getuser())
    path.write_text(text)
    print(f"wrote {path}; now: systemctl daemon-reload && systemctl enable --now {path.name}")
