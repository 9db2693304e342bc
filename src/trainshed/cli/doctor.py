"""`trainshed doctor`: checks this machine and says what is missing and how to get it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainshed.cli.output import print_json

if TYPE_CHECKING:
    from trainshed.engines.base import Check


def doctor(
    engine: Annotated[str, typer.Option("--engine", help="check this engine")] = "local",
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Check what an engine needs here. Exit code 1 when something it cannot do without is missing."""
    from trainshed.api import Client

    client = Client()
    checks = [*_machine(client.home), *client.describe(engine), *_environments(client.context.environ)]
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            label = "ok     " if check.good else "MISSING" if check.required else "missing"
            print(f"{label}  {check.name}: {check.found}")
            if check.remedy:
                print(f"         → {check.remedy}")
    if any(check.required and not check.good for check in checks):
        raise typer.Exit(1)


def _can_write(folder: Path) -> bool:
    """Tried, since rights do not tell of read-only and virtual file systems; nothing is left behind."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _machine(folder: Path) -> list[Check]:
    from trainshed.engines.base import Check

    probe = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(probe).free / 2**30
    usable = _can_write(probe)
    remedy = f"set TRAINSHED_HOME to a folder of yours; {probe} is not one"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        Check("python", sys.version_info >= (3, 11), sys.version.split()[0], required=True),
        Check("machine", True, f"{os.cpu_count()} cores, {memory:.0f} GiB"),
        Check(
            "home",
            usable,
            f"{folder}, {free:.0f} GiB free" if usable else f"{folder} cannot be written",
            remedy if not usable else "" if free > 5 else "free some disk space",
            required=True,
        ),
    ]


def _environments(environ: Mapping[str, str]) -> list[Check]:
    from trainshed.engines.base import Check
    from trainshed.environments import framework_names, resolve
    from trainshed.errors import NotFoundError

    checks = []
    for name in framework_names():
        try:
            checks.append(Check(f"environment {name}", True, str(resolve(name, environ).prefix)))
        except NotFoundError:
            checks.append(Check(f"environment {name}", False, "not made yet", f"trainshed env create {name}"))
    return checks
