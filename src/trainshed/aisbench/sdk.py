"""What the `modelarts` SDK of a published package asks for: jobs made, asked about and stopped.

The SDK runs in the package's own Python; each call is one process here, JSON in and out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from trainshed.access import StoreAccess
from trainshed.aisbench import train
from trainshed.aisbench.config import Package, SessionConfig, Settings, read_modelarts, read_settings
from trainshed.aisbench.job import build_job, location
from trainshed.aisbench.registry import LABEL, Registry, Version
from trainshed.api import Client
from trainshed.errors import NotFoundError, UsageError
from trainshed.modelarts.catalogue import FLAVORS
from trainshed.modelarts.states import JobPhase, JobStatus
from trainshed.runs.states import RunState

Fields = dict[str, Any]


def answer(verb: str, package: Package, fields: Fields, caller: train.PackageCaller) -> Any:
    """The answer to one call of the SDK."""
    verbs: dict[str, Callable[[Package, Fields, train.PackageCaller], Any]] = {
        "flavors": lambda _package, _fields, _caller: list(FLAVORS),
        "list": _list,
        "submit": _submit,
        "info": _info,
        "stop": _stop,
    }
    if verb not in verbs:
        raise UsageError(f"the SDK has no call {verb!r}", f"choose {', '.join(verbs)}")
    return verbs[verb](package, fields, caller)


def _list(_package: Package, fields: Fields, caller: train.PackageCaller) -> Fields:
    """The newest version of exactly this name."""
    client = caller.client()
    version = Registry(client.home).newest(str(fields["name"]))
    if version is None:
        return {"is_success": True, "job_total_count": 0, "jobs": []}
    return {"is_success": True, "job_total_count": 1, "jobs": [_version_info(client, version)]}


def _submit(package: Package, fields: Fields, caller: train.PackageCaller) -> Fields:
    settings = read_settings(package, caller.environ)
    access, _ = read_modelarts(package, settings.MODELARTS_VERSION)
    client = caller.client(access)
    registry = Registry(client.home)
    api = "V2" if fields["api"] == "V2" else "V1"
    if fields.get("job_id") is not None:
        earlier = registry.by_id(str(fields["job_id"]))
        if earlier is None:
            raise NotFoundError(f"unknown job id {fields['job_id']}", "give the job another job_name")
        fields["job_name"] = earlier.job_name
    session = _session(fields)
    _check_fresh(session.out_base_url, client.context.store)
    # A name of V2 is used once; the first version of a name is V1, as the package counts.
    version = registry.begin(
        session.job_name, registry.next_number(session.job_name), api, session.out_base_url, package.root
    )
    train.upload_code(package.model_code, location(session.code_dir, "code_dir"), client.context.store)
    log_url = location(fields["log_url"], "log_url") if fields.get("log_url") else ""
    job = build_job(session, settings, version, client.context.environ, log_url=log_url)
    request = client.request(job, labels={LABEL: str(version.id)}, emulate=settings.emulate)
    (started,) = client.start(request, _engine(settings))
    registry.started(version, started.id)
    found = registry.get(version.id)
    assert found is not None
    return _answer(client, found)


def _info(_package: Package, fields: Fields, caller: train.PackageCaller) -> Fields:
    client = caller.client()
    return _answer(client, _known(client, fields))


def _stop(_package: Package, fields: Fields, caller: train.PackageCaller) -> Fields:
    client = caller.client()
    return {"is_success": train.stop_version(client, _known(client, fields))}


def _known(client: Client, fields: Fields) -> Version:
    registry, identity = Registry(client.home), fields.get("id")
    version = registry.by_id(str(identity)) if fields["api"] == "V2" else registry.get(int(identity or 0))
    if version is None:
        raise NotFoundError(f"unknown job id {identity}", "look at the ids that the package printed")
    return version


def _session(fields: Fields) -> SessionConfig:
    """The SDK's names for the configuration's fields; the package has read that file itself."""
    raw = {name: value for name, value in fields.items() if value is not None}
    raw["out_base_url"] = raw.pop("output_path", "")
    try:
        return SessionConfig.model_validate(raw)
    except ValidationError as error:
        first: Any = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"{name}: {first['msg']} (found {str(first.get('input'))[:80]!r})",
            f"correct {name} in config/modelarts_config.py",
        ) from error


def _check_fresh(out: str, access: StoreAccess) -> None:
    """Results of an earlier job must not be taken for this one's."""
    from trainshed.store import list_tree

    folder = location(out, "out_base_url")
    try:
        found = list_tree(folder, credentials=access.keys(folder))
        old = next((entry.name for entry in found if not entry.is_directory), "")
    except NotFoundError:
        return
    if old:
        raise UsageError(
            f"{folder} already holds {old} of another job",
            "choose another job_name or out_base_url in config/modelarts_config.py",
        )


def _engine(settings: Settings) -> str:
    train.check_engine(settings)
    return settings.TRAINSHED_ENGINE


def _answer(client: Client, version: Version) -> Fields:
    info = _version_info(client, version)
    if version.api == "V1":
        return info
    return {
        "kind": "job",
        "metadata": {"id": version.resource, "name": version.job_name, "create_time": info["create_time"]},
        "status": {"phase": info["phase"], "duration": info["duration"]},
    }


def _version_info(client: Client, version: Version) -> Fields:
    run = version.find_run(client)
    summary = run.refresh() if run else None
    state = summary.state if summary else RunState.LOST
    begun = summary.started if summary and summary.started else None
    ended = summary.ended if summary and summary.ended else time.time()
    return {
        "is_success": True,
        "job_id": version.job_id,
        "job_name": version.job_name,
        "version_id": version.id,
        "version_name": f"V{version.number}",
        "resource_id": version.resource,
        "status": JobStatus.of(state).value,
        "phase": JobPhase.of(state).value,
        "create_time": int(((summary.submitted if summary else None) or ended) * 1000),
        "duration": int(max(0.0, ended - begun) * 1000) if begun else 0,
    }
