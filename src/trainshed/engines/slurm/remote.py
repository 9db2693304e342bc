"""Slurm from a laptop: the job is submitted on a login node over SSH, and its runs are mirrored here."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from trainshed.codefiles import code_files
from trainshed.engines.base import Check, Request
from trainshed.engines.slurm.profile import Profile, SlurmSettings
from trainshed.errors import UsageError
from trainshed.runs import locations, site
from trainshed.runs.directory import RunDirectory
from trainshed.runs.locations import RunLocation
from trainshed.runs.site import RemoteSite, SiteError
from trainshed.spec.job import JobSpec


def submit(
    request: Request, chosen: SlurmSettings, values: dict[str, str], runs: Sequence[RunDirectory]
) -> None:
    """Upload the job's local folders and submit there, under the same run ids."""
    job = request.job
    sources = _local_sources(job)
    targets = {name: name if path.is_dir() else f"{name}/{path.name}" for name, path in sources.items()}
    reached = site_of(chosen.profile)
    message = {
        "action": "submit",
        "engine": "slurm",
        "ids": [run.id for run in runs],
        "job": job.model_dump(mode="json", exclude_defaults=True),
        "settings": _on_login_node(chosen).model_dump(mode="json", exclude_defaults=True),
        "emulate": request.emulate,
        "secrets": values,
        "labels": dict(request.labels),
        "targets": targets,
    }

    def upload(stream: IO[bytes]) -> None:
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            for name, path in sources.items():
                if name != "code":
                    archive.add(path, arcname=targets[name])
                    continue
                found = code_files(path, job.inputs_in_code)
                archive.add(path, arcname=targets[name], recursive=False)
                for item in (*found.names, *found.empty):
                    archive.add(path / item, arcname=f"{targets[name]}/{item}", recursive=False)

    answer, _ = site.call(reached, message, upload)
    for run, path in zip(runs, answer["runs"], strict=True):
        locations.make_mirror(run, RunLocation(path=path, site=reached.to_json(), upload=answer["upload"]))


def describe(chosen: SlurmSettings) -> list[Check]:
    message = {
        "action": "describe",
        "engine": "slurm",
        "settings": _on_login_node(chosen).model_dump(mode="json", exclude_defaults=True),
    }
    try:
        answer, _ = site.call(site_of(chosen.profile), message)
    except SiteError as error:
        return [Check("login", False, error.message, error.hint, required=True)]
    return [Check("login", True, str(chosen.profile.login)), *(Check(**item) for item in answer["checks"])]


def site_of(profile: Profile) -> RemoteSite:
    return RemoteSite(
        login=profile.login or "",
        ssh=profile.ssh,
        python=profile.python or "python3",
        home=profile.home or "",
        environments=profile.environments or "",
    )


def _on_login_node(chosen: SlurmSettings) -> SlurmSettings:
    """The settings as they hold on the login node itself."""
    return chosen.model_copy(update={"profile": chosen.profile.model_copy(update={"login": None})})


def _local_sources(job: JobSpec) -> dict[str, Path]:
    """What must be uploaded, by what it is of the job; outputs and logs can only come back with the run."""
    if job.log_url and "://" not in job.log_url:
        raise UsageError(f"log_url is {job.log_url!r}, a folder of this machine", "give a URL")
    for channel in job.outputs:
        if channel.target and "://" not in channel.target:
            raise UsageError(
                f"outputs.{channel.name}.target is {channel.target!r}, a folder of this machine",
                "leave target out: the output then comes back with the run; or give a URL",
            )
    sources = {"code": job.code, **{f"inputs/{c.name}": c.source for c in job.inputs}}
    return {name: Path(path) for name, path in sources.items() if path and "://" not in path}
