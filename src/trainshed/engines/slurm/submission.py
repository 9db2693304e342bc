"""What a submission leaves for its driver: settings with the run's first event, secrets outside the run.

Secrets are in a file that only their owner can read, until the run has ended;
where nodes share no file system, Slurm passes them with the job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trainshed.engines.base import Context
from trainshed.engines.slurm.profile import SlurmSettings
from trainshed.errors import TrainshedError
from trainshed.files import write_atomic
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import UnreadableRunError

VARIABLE = "TRAINSHED_SUBMISSION"
"""In which Slurm passes the driver its secrets where there is no shared file."""


class Submission(BaseModel):
    """How the run was submitted, besides its job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: SlurmSettings
    emulate: bool = False
    user: str = "trainshed"
    store: dict[str, str] = {}
    """Variables of the object store; its keys are among the secrets."""


def read(run: RunDirectory) -> Submission:
    try:
        return Submission.model_validate(dict(run.submission().settings))
    except ValidationError as error:
        raise UnreadableRunError(
            f"run {run.id}: its settings were written by another release of Trainshed",
            "read the run with the release that made it",
        ) from error


def keep(run: RunDirectory, values: dict[str, str]) -> None:
    """Secrets, for the driver on this file system."""
    path = _path(run)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(path, json.dumps(values), 0o600)


def bring(values: Mapping[str, str], url: str, context: Context) -> dict[str, str]:
    """The variables with which Slurm brings the driver its secrets and the way to the store."""
    access = context.store.credentials(url.partition(":")[0]).environment()
    return {VARIABLE: json.dumps({"secrets": dict(values), "store": access})}


def secrets(run: RunDirectory, wanted: bool) -> dict[str, str]:
    if not wanted:
        return {}
    try:
        found: dict[str, str] = json.loads(_path(run).read_text())
    except (OSError, ValueError) as error:
        raise TrainshedError(
            f"the job's secrets cannot be read on this node: {error}",
            "Trainshed's home must be on a file system that nodes share",
        ) from error
    return found


def forget(run: RunDirectory) -> None:
    _path(run).unlink(missing_ok=True)


def _path(run: RunDirectory) -> Path:
    return run.home / "submissions" / f"{run.id}.json"
