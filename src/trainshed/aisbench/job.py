"""From a package's configuration to a JobSpec. It looks an environment up; it starts and copies nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainshed.aisbench.config import SessionConfig, Settings
from trainshed.aisbench.registry import Version
from trainshed.errors import TrainshedError, UsageError
from trainshed.modelarts import catalogue
from trainshed.spec.job import JobSpec
from trainshed.spec.load import load_job

_USUAL_CARDS = 8


def location(text: str, field: str) -> str:
    """A place of the configuration: obs://, s3:// and `/bucket/key` are the store, file:// is a folder."""
    text = text.strip()
    if text.startswith(("obs://", "s3://")):
        return text
    if text.startswith("file:///"):
        return text.removeprefix("file://")
    if text.startswith("/") and text.strip("/"):
        return "obs:/" + text
    raise UsageError(f"{field} is {text!r}", "write obs://BUCKET/FOLDER/, /BUCKET/FOLDER/ or file:///FOLDER/")


def entry_of(session: SessionConfig) -> str:
    """The boot file, relative to the code folder."""
    code, boot = location(session.code_dir, "code_dir").rstrip("/") + "/", session.boot_file.strip()
    if boot.startswith(("obs://", "s3://", "/", "file://")):
        whole = location(boot, "boot_file")
        if not whole.startswith(code):
            raise UsageError(f"boot_file {boot!r} is not inside code_dir {session.code_dir!r}", "correct one")
        boot = whole.removeprefix(code)
    if not boot or ".." in boot.split("/"):
        raise UsageError(f"boot_file {session.boot_file!r} is not a file in code_dir", "correct it")
    return boot


def launcher_of(session: SessionConfig) -> str:
    """The framework's launcher, by the words of framework_version or framework_type."""
    if found := catalogue.launcher_of(session.framework_version, session.framework_type):
        return found
    text = f"framework_version {session.framework_version!r} and framework_type {session.framework_type!r}"
    raise UsageError(f"unknown framework: {text}", "write for example MindSpore-1.3-cann_5.0.2-…")


def devices_of(session: SessionConfig, settings: Settings) -> int:
    """Cards of one server: as set, else by the flavour's name, else the usual 8 of a pool's servers."""
    if settings.TRAINSHED_DEVICES is not None:
        return settings.TRAINSHED_DEVICES
    if session.train_instance_type:
        found = catalogue.devices_of(session.train_instance_type)
        if found is None:
            text = f"train_instance_type {session.train_instance_type!r} tells no number of cards"
            raise UsageError(text, "use modelarts.kat1.8xlarge or set TRAINSHED_DEVICES in config.sh")
        return found
    return settings.DEVICE_NUM or _USUAL_CARDS


def build_job(
    session: SessionConfig,
    settings: Settings,
    version: Version,
    environ: Mapping[str, str],
    code: str = "",
    log_url: str = "",
) -> JobSpec:
    """The job of one version; `code` stands in for a code folder that is not filled yet.

    `environ` says where environments are looked up.
    """
    launcher = launcher_of(session)
    ascend = catalogue.is_ascend(session.framework_type)
    out = location(version.out, "out_base_url")
    raw: dict[str, Any] = {
        "name": session.job_name,
        "launcher": launcher,
        "contract": f"modelarts-{version.api.lower()}",
        "code": code or location(session.code_dir, "code_dir").rstrip("/"),
        "entry": entry_of(session),
        "parameters": session.named_parameters(),
        "inputs": [{"name": session.input_name, "source": location(session.inputs, "inputs")}],
        "outputs": [{"name": session.output_name, "target": out}],
        "log_url": log_url or f"{out}log/",
        "resources": {
            "nodes": session.train_instance_count,
            "devices": devices_of(session, settings),
            "kind": "ascend" if ascend else "cpu",
        },
        "mode": "single_server" if settings.single_server else "distributed",
        "env": {"AIS_BENCH_VERSION_ID": str(version.id), "SINGLESERVER_MODE": str(settings.single_server)},
        "options": {"job_id": version.resource},
        "timeout": settings.TRAINSHED_TIMEOUT,
    }
    environment = settings.TRAINSHED_ENVIRONMENT or _usual_environment(launcher, environ)
    if environment:
        raw["environment"] = environment
    return load_job(raw)


def _usual_environment(launcher: str, environ: Mapping[str, str]) -> str:
    """The framework's own environment, where there is one of its name."""
    from trainshed.environments import resolve

    try:
        resolve(launcher, environ)
    except TrainshedError:
        return ""
    return launcher
