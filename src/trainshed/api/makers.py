"""Has data made that a job or workload says how to make: a script that is given the folder."""

from __future__ import annotations

import errno
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trainshed.errors import TrainshedError
from trainshed.spec.job import JobSpec

_LONGEST_SECONDS = 1800


def make_inputs(job: JobSpec, environ: Mapping[str, str]) -> None:
    """Make the inputs that are missing and have a maker."""
    for channel in job.inputs:
        if channel.maker and channel.source and "://" not in channel.source:
            folder = Path(channel.source)
            if not folder.exists():
                make_folder(Path(channel.maker), folder, environ)


def make_folder(maker: Path, folder: Path, environ: Mapping[str, str]) -> None:
    """Have the data made beside the folder: they take its place only when they are whole.

    `environ` are the maker's variables.
    """
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run(maker, part, environ)
        part.rename(folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # another process has made the same data meanwhile
            raise TrainshedError(f"{maker}: {error}", "it must create the folder passed to it") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run(maker: Path, folder: Path, environ: Mapping[str, str]) -> None:
    by_hand = f"run it by hand to see all it says: {sys.executable} {maker} FOLDER"
    command = [sys.executable, str(maker), str(folder)]
    try:
        done = subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TrainshedError(f"{maker} did not finish within {_LONGEST_SECONDS} s", by_hand) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise TrainshedError(f"{maker} failed: {' '.join(lines)}", by_hand)
