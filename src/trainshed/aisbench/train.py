"""`train_modelarts.py --action run|stop`: the job of a package through an engine.

Asked to stop, it stops the job on all its nodes before it returns. A kill of this
process leaves the job running, as a platform would; `collect` finds it again.
It prints nothing and handles no signals: the caller is told lines, and is asked
whether to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.aisbench import moving, results
from trainshed.aisbench.config import (
    AccessConfig,
    Package,
    SessionConfig,
    Settings,
    read_modelarts,
    read_settings,
)
from trainshed.aisbench.job import build_job, entry_of, location
from trainshed.aisbench.logsync import LogSync
from trainshed.aisbench.registry import LABEL, Registry, Version
from trainshed.aisbench.watched import nonce_label
from trainshed.api import Client, Run
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.modelarts.states import status_name
from trainshed.registry import members
from trainshed.runs.states import RunState
from trainshed.runs.summary import Summary

_STOP_SECONDS = 120.0
_MOST_VERSIONS = 100_000


class JobFailed(TrainshedError):
    """The training job did not end well."""

    code = "job-failed"


class Stopped(TrainshedError):
    """The job was stopped through this command."""

    code = "stopped"
    exit_code = 130


@dataclass(frozen=True)
class PackageCaller:
    """Who runs a package: a shell's variables, where lines are told, and whether the end was asked for."""

    environ: Mapping[str, str]
    tell: Callable[[str], None] = lambda _line: None
    is_stopped: Callable[[], bool] = lambda: False

    def client(self, access: AccessConfig | None = None) -> Client:
        """A client for these variables; with `access`, for the store that the configuration names."""
        environ = self.environ if access is None else moving.with_store(access, self.environ)
        return Client.from_environment(environ)


@dataclass(frozen=True)
class Ready:
    """What was read and checked before anything is started."""

    settings: Settings
    access: AccessConfig
    session: SessionConfig
    client: Client


def prepare(package: Package, caller: PackageCaller) -> Ready:
    """Read and check everything that can be wrong before anything is started."""
    settings = read_settings(package, caller.environ)
    access, session = read_modelarts(package, settings.MODELARTS_VERSION)
    check_engine(settings)
    boot = package.model_code / entry_of(session)
    if not boot.is_file():
        raise NotFoundError(f"boot_file: {boot} does not exist", "correct boot_file in modelarts_config.py")
    nothing = Version(
        0, 0, session.job_name, 0, settings.MODELARTS_VERSION, "job0", session.out_base_url, "", ""
    )
    client = caller.client(access)
    build_job(session, settings, nothing, client.context.environ, code=str(package.model_code))
    return Ready(settings, access, session, client)


def check_engine(settings: Settings) -> None:
    if settings.TRAINSHED_ENGINE not in members("engine"):
        names = ", ".join(members("engine"))
        raise UsageError(f"TRAINSHED_ENGINE is {settings.TRAINSHED_ENGINE!r}", f"choose one of {names}")


def run(package: Package, caller: PackageCaller, local_code: Path | None = None) -> Version:
    """Upload the code, submit the job, follow it to its end and fetch its results."""
    ready = prepare(package, caller)
    client, settings, session = ready.client, ready.settings, ready.session
    registry = Registry(client.home)
    version = _begin(registry, package, ready)
    upload_code(
        local_code or package.model_code, location(session.code_dir, "code_dir"), client.context.store
    )
    job = build_job(session, settings, version, client.context.environ)
    labels = {LABEL: str(version.id)} | nonce_label(caller.environ)
    request = client.request(job, labels=labels, emulate=settings.emulate)
    (started,) = client.start(request, settings.TRAINSHED_ENGINE)
    registry.started(version, started.id)
    caller.tell(
        f"jobname:{version.job_name} jobid:{version.job_id} versionid:{version.id} "
        f"version:V{version.number} run:{started.id}"
    )
    _follow(package, ready, version, started, caller)
    return version


def again(package: Package, caller: PackageCaller) -> Version:
    """Take up the newest job of this package after a crash: follow it if it still runs, fetch its results."""
    ready = prepare(package, caller)
    client = ready.client
    registry = Registry(client.home)
    version = registry.newest_of_package(package.root)
    found = version.find_run(client) if version else None
    if version is None or found is None:
        raise NotFoundError(f"no job of {package.root} is known", "start it with `ais-bench-stubs test`")
    if not version.run:
        registry.started(version, found.id)
    _follow(package, ready, version, found, caller)
    return version


def _follow(package: Package, ready: Ready, version: Version, run: Run, caller: PackageCaller) -> None:
    """Sync logs and tell states until the job has ended; then fetch results, or say why there are none."""
    logs = LogSync(run.directory, package.log)
    last: RunState | None = None
    while True:
        summary = run.refresh()
        logs.sync(final=summary.state.is_final)
        if summary.state is not last:
            last = summary.state
            caller.tell(f"jobname:{version.job_name} jobstatus:{status_name(version.api, last)}")
        if summary.state.is_final:
            break
        if caller.is_stopped():
            run.stop("stopped with Ctrl-C")
            run.wait(_STOP_SECONDS)
            logs.sync(final=True)
            raise Stopped(f"job {version.label} was stopped", "run it again when you like")
        run.wait(ready.settings.TRAINSHED_POLL, until=caller.is_stopped)
    if summary.state is not RunState.SUCCEEDED:
        raise JobFailed(_failure(version, summary), f"its logs: {package.log} and {run.path}")
    for line in results.fetch(package, version, run.directory, ready.client.context.store):
        caller.tell(line)


def stop(package: Package, caller: PackageCaller, job_id: str = "") -> bool:
    """Stop exactly one job: by its id, or the newest version of the name in the configuration."""
    settings = read_settings(package, caller.environ)
    _, session = read_modelarts(package, settings.MODELARTS_VERSION)
    client = caller.client()
    registry = Registry(client.home)
    version = registry.by_id(job_id) if job_id else registry.newest(session.job_name)
    if version is None:
        what = f"job id {job_id!r}" if job_id else f"job_name {session.job_name!r}"
        raise NotFoundError(f"unknown {what}", "nothing was stopped")
    run = version.find_run(client)
    if run is None:
        raise NotFoundError(f"the run of {version.label} no longer exists", "nothing was stopped")
    before = run.state
    done = stop_version(client, version)
    identity = version.job_id if version.api == "V1" else version.resource
    caller.tell(
        f"jobname:{version.job_name} jobid:{identity} preversionid:{version.id} "
        f"jobstatus:{status_name(version.api, before)} stop status:{{'is_success': {done}}}"
    )
    return done


def stop_version(client: Client, version: Version, why: str = "train_modelarts.py --action stop") -> bool:
    """Stop the job of a version and wait for its end; False when there was nothing to stop."""
    run = version.find_run(client)
    if run is None or run.state.is_final:
        return False
    run.stop(f"stopped by {why}")
    return run.wait(_STOP_SECONDS).state.is_final


def newest(package: Package, client: Client) -> Version | None:
    """The newest job of the package."""
    return Registry(client.home).newest_of_package(package.root)


def still_runs(package: Package, client: Client) -> bool:
    """Whether the newest job of the package goes on without anybody following it."""
    version = newest(package, client)
    run = version.find_run(client) if version else None
    return run is not None and not run.state.is_final


def why_failed(version: Version, client: Client) -> str:
    """The failing rank's own words, or nothing if the job did not fail."""
    run = version.find_run(client)
    summary = run.refresh() if run else None
    if summary is None or not summary.state.is_final or summary.state is RunState.SUCCEEDED:
        return ""
    return _failure(version, summary)


def _failure(version: Version, summary: Summary) -> str:
    lines = summary.failure.last_lines if summary.failure else ()
    shown = "".join(f"\n    {line}" for line in lines)
    return f"job {version.label} is {status_name(version.api, summary.state)}: {summary.reason}{shown}"


def _begin(registry: Registry, package: Package, ready: Ready) -> Version:
    """A version whose output folder is fresh: nothing of an earlier job may be taken for this one's."""
    from trainshed.store import exists

    session, settings = ready.session, ready.settings
    base = location(session.out_base_url, "out_base_url").rstrip("/")
    keys = ready.client.context.store.keys(base)
    number = registry.next_number(session.job_name)
    api = settings.MODELARTS_VERSION
    if api == "V2":
        out = f"{base}/{session.job_name}{time.strftime('%Y_%m_%d-%H_%M_%S')}/"
        if exists(out, credentials=keys):
            raise UsageError(f"{out} already exists", "wait a second and try again")
    else:
        while exists(f"{base}/V{number}/", credentials=keys):
            number += 1
            if number > _MOST_VERSIONS:
                raise UsageError(f"{base} holds too many versions", "choose another out_base_url")
        out = f"{base}/V{number}/"
    text = out if "://" in out else f"file://{out}"
    return registry.begin(session.job_name, number, api, text, package.root)


def upload_code(source: Path, target: str, access: StoreAccess) -> None:
    """Make the code folder equal to the package's: what an earlier upload left does not survive."""
    from trainshed.store import copy

    # By force: files of a package have no times, so an equal size must not count as unchanged.
    folder = target.rstrip("/") + "/"
    copy(f"{source.resolve()}/", folder, delete=True, force=True, resolve=access.credentials)
