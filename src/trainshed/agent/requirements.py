"""Python packages a job lists in its code: installed for its node alone, never into a shared environment.

Only what the job's environment lacks is installed: pip's own `--target` takes no notice of what is there, and
would fetch a framework of several GB once more for a small package that needs it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainshed.agent import hooks
from trainshed.agent.masking import Log
from trainshed.agent.node_access import NodeAccess
from trainshed.errors import TrainshedError

_INSTALL = ("install", "--no-input", "--disable-pip-version-check")


def install(listing: str, env: dict[str, str], log: Callable[[], Log], access: NodeAccess) -> None:
    """Install what the file lists and put it before everything else on the processes' paths.

    `log` opens the log again for each program that writes it.
    """
    private = f"{env['TMPDIR']}/.trainshed"
    folder, report = f"{private}/packages", f"{private}/missing.json"
    Path(access.real(private)).mkdir(parents=True, exist_ok=True)
    pip = _pip(env, access)
    # The machine's own settings of pip count, not those of the node's empty home; what an earlier list installed counts too.
    settings = {**os.environ, "TMPDIR": access.real(env["TMPDIR"]), "PYTHONPATH": folder}

    def run(*arguments: str) -> None:
        argv = access.enter([*pip, *_INSTALL, *arguments], str(Path(listing).parent), env)
        name = f"pip, installing {Path(listing).name},"
        hooks.run(name, argv, str(Path(access.real(listing)).parent), settings, log())

    if _can_report(access.enter([*pip, "install", "--help"], "/", env), settings):
        run("--quiet", "--dry-run", "--report", report, "-r", listing)
        if missing := _missing(Path(access.real(report))):
            run("--no-deps", "--target", folder, *missing)
    else:
        run("--target", folder, "-r", listing)
    env["PYTHONPATH"] = f"{folder}:{env['PYTHONPATH']}"
    env["PATH"] = f"{folder}/bin:{env['PATH']}"


def _pip(env: dict[str, str], access: NodeAccess) -> list[str]:
    """The pip of the job's Python; ours on its behalf where it has none."""
    if access.is_outside:
        return ["python", "-m", "pip"]
    python = shutil.which("python", path=env["PATH"]) or sys.executable
    found = subprocess.run([python, "-c", "import pip"], capture_output=True, timeout=60)
    return (
        [python, "-m", "pip"] if found.returncode == 0 else [sys.executable, "-m", "pip", "--python", python]
    )


def _can_report(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether pip, asked for its help, knows how to say what it would install: none from before 2022 does."""
    found = subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=300)
    return "--report" in found.stdout


def _missing(report: Path) -> list[str]:
    """What pip found missing, each as an argument that means this very file or revision."""
    try:
        return [_located(item["download_info"]) for item in json.loads(report.read_text())["install"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainshedError(f"pip's report of what is missing cannot be read: {error!r}") from error


def _located(found: dict[str, Any]) -> str:
    url = str(found["url"])
    if vcs := found.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    folder = found.get("subdirectory")
    return f"{url}#subdirectory={folder}" if folder else url
