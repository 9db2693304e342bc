"""Python packages a job lists in its code: installed for its node alone, never into a shared environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from trainshed.agent import hooks
from trainshed.agent.masking import Log
from trainshed.agent.place import Place


def install(listing: str, env: dict[str, str], log: Log, place: Place) -> None:
    """Install what the file lists and put it before everything else on the processes' paths."""
    folder = f"{env['TMPDIR']}/.trainshed/packages"
    words = ["install", "--no-input", "--disable-pip-version-check", "--target", folder, "-r", listing]
    argv = place.enter([*_pip(env, place), *words], str(Path(listing).parent), env)
    # The machine's own settings of pip count, not those of the node's empty home.
    settings = {**os.environ, "TMPDIR": place.real(env["TMPDIR"])}
    hooks.run(
        f"pip, installing {Path(listing).name},", argv, str(Path(place.real(listing)).parent), settings, log
    )
    env["PYTHONPATH"] = f"{folder}:{env['PYTHONPATH']}"
    env["PATH"] = f"{folder}/bin:{env['PATH']}"


def _pip(env: dict[str, str], place: Place) -> list[str]:
    """The pip of the job's Python; ours on its behalf where it has none."""
    if place.enter(["true"], "/", {}) != ["true"]:
        return ["python", "-m", "pip"]
    python = shutil.which("python", path=env["PATH"]) or sys.executable
    found = subprocess.run([python, "-c", "import pip"], capture_output=True, timeout=60)
    return (
        [python, "-m", "pip"] if found.returncode == 0 else [sys.executable, "-m", "pip", "--python", python]
    )
