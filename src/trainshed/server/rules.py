"""What a job submitted over HTTP may name: nothing of the server's machine, nothing of its environment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trainshed.errors import RefusedError
from trainshed.spec.job import JobSpec

_STORE = re.compile(r"\b(obs|s3)://")


def check_job(fields: Mapping[str, Any]) -> None:
    """RefusedError names the first field that reaches for the server's own files."""
    _refuse_if("code" in fields and fields["code"] is not None, "code", "upload it: `files` of the request")
    for side in ("inputs", "outputs"):
        channels = fields.get(side)
        for index, channel in enumerate(channels if isinstance(channels, list | tuple) else ()):
            for key in ("source", "target", "maker"):
                named = isinstance(channel, Mapping) and channel.get(key) is not None
                _refuse_if(
                    named, f"{side}.{index}.{key}", "files of the server's machine are not a job's to name"
                )
    _refuse_if(fields.get("log_url") is not None, "log_url", "logs are read through the server")
    environment = fields.get("environment")
    _refuse_if(isinstance(environment, str) and "/" in environment, "environment", "use a name, not a path")
    wanted = fields.get("secrets")
    for name, reference in wanted.items() if isinstance(wanted, Mapping) else ():
        by_file = isinstance(reference, Mapping) and reference.get("file") is not None
        _refuse_if(by_file, f"secrets.{name}.file", "store the secret, and write {env: NAME} with its name")
    # The store's keys of this machine would come along with such a URL.
    _refuse_if(
        _STORE.search(json.dumps(fields, default=str)) is not None,
        "s3:// or obs://",
        "accounts have no buckets yet",
    )


def secret_names(job: JobSpec) -> dict[str, str]:
    """Variable → name of the stored secret."""
    return {name: reference.env or "" for name, reference in job.secrets.items()}


def _refuse_if(condition: bool, field: str, remedy: str) -> None:
    if condition:
        raise RefusedError(f"{field}: not served in a job that is submitted over HTTP", remedy)
