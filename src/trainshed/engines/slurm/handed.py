"""What a submission leaves for its driver: settings with the run's first event, secrets outside the run.

Secrets lie in a file that only their owner can read, until the run has ended.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trainshed.engines.slurm.profile import Settings
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory, home


class Submission(BaseModel):
    """How the run was asked for, besides its job."""

    model_config = ConfigDict(frozen=True)

    settings: Settings
    emulate: bool = False
    user: str = "trainshed"
    store: dict[str, str] = {}
    """Variables that lead to the object store; its keys are among the secrets."""


def keep(run: RunDirectory, values: dict[str, str]) -> None:
    """Secrets, for the driver on this file system."""
    path = _secrets(run)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a start that was killed
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        json.dump(values, stream)


def read(run: RunDirectory) -> Submission:
    return Submission.model_validate(next(run.events()).data["submission"])


def secrets(run: RunDirectory, wanted: bool) -> dict[str, str]:
    if not wanted:
        return {}
    try:
        found: dict[str, str] = json.loads(_secrets(run).read_text())
    except (OSError, ValueError) as error:
        raise TrainshedError(
            f"the job's secrets cannot be read on this node: {error}",
            "Trainshed's home must lie on a file system that nodes share",
        ) from None
    return found


def forget(run: RunDirectory) -> None:
    _secrets(run).unlink(missing_ok=True)


def _secrets(run: RunDirectory) -> Path:
    return home() / "handed" / f"{run.id}.json"
