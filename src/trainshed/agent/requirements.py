"""Python packages a job lists in its code: installed for its node alone, never into a shared environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from trainshed.agent.hooks import HookError
from trainshed.agent.masking import Log
from trainshed.agent.place import Place

_LIMIT = 1800.0


def install(listing: str, env: dict[str, str], log: Log, place: Place) -> None:
    """Install what the file lists and put it before everything else on the processes' paths."""
    folder = f"{env['TMPDIR']}/.trainshed/packages"
    words = ["install", "--no-input", "--disable-pip-version-check", "--target", folder, "-r", listing]
    with log.stream as out:
        process = subprocess.Popen(
            place.enter([*_pip(env, place), *words], str(Path(listing).parent), env),
            cwd=Path(place.real(listing)).parent,
            # The machine's own settings of pip count, not those of the node's empty home.
            env={**os.environ, "TMPDIR": place.real(env["TMPDIR"])},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            code = process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise HookError(f"{Path(listing).name} was not installed within {_LIMIT:.0f} s") from None
    if code != 0:
        raise HookError(f"{Path(listing).name} cannot be installed: pip exited with {code}")
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
