"""`trainshed doctor`: checks this machine and says what is missing and how to get it."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from trainshed import axes
from trainshed.cli.output import print_json
from trainshed.engines.base import Check
from trainshed.runs.directory import home


def doctor(
    engine: Annotated[str, typer.Option("--engine", help="check this engine")] = "local",
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Check what an engine needs here. Exit code 1 when something it cannot do without is missing."""
    checks = [*_machine(), *axes.load("engine", engine).describe(), *_environments()]
    if as_json:
        print_json([{"name": c.name, "good": c.good, "found": c.found, "remedy": c.remedy} for c in checks])
        return
    for check in checks:
        print(f"{'ok     ' if check.good else 'missing'}  {check.name}: {check.found}")
        if check.remedy:
            print(f"         → {check.remedy}")


def _machine() -> list[Check]:
    folder = home()
    probe = folder if folder.exists() else folder.parent
    free = shutil.disk_usage(probe).free / 2**30
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        Check("python", sys.version_info >= (3, 11), sys.version.split()[0], ""),
        Check("machine", True, f"{os.cpu_count()} cores, {memory:.0f} GiB"),
        Check(
            "home",
            os.access(probe, os.W_OK),
            f"{folder}, {free:.0f} GiB free",
            "" if free > 5 else "free some disk",
        ),
    ]


def _environments() -> list[Check]:
    from trainshed.environments import framework_names, resolve
    from trainshed.errors import NotFoundError

    checks = []
    for name in framework_names():
        try:
            checks.append(Check(f"environment {name}", True, str(resolve(name).prefix)))
        except NotFoundError:
            checks.append(Check(f"environment {name}", False, "not made yet", f"trainshed env create {name}"))
    return checks
