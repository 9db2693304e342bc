"""`train_modelarts.py --action run|stop`: the job of a package through an engine.

Ctrl-C and SIGTERM stop the job on all its nodes before this process ends. A
kill leaves the job running, as a platform would; `collect` finds it again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from trainshed.aisbench.status import status_name
from trainshed.aisbench.watched import nonce_label
from trainshed.api import Client, Run
from trainshed.errors import NotFoundError, TrainshedError, UsageError
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


def prepare(package: Package) -> tuple[Settings, AccessConfig, SessionConfig]:
    """Read and check everything that can be wrong before anything is started."""
    settings = read_settings(package)
    access, session = read_modelarts(package, settings.MODELARTS_VERSION)
    moving.use(access)
    check_engine(settings)
    boot = package.model_code / entry_of(session)
    if not boot.is_file():
        raise NotFoundError(f"boot_file: {boot} does not exist", "correct boot_file in modelarts_config.py")
    nothing = Version(
        0, 0, session.job_name, 0, settings.MODELARTS_VERSION, "job0", session.out_base_url, "", ""
    )
    build_job(session, settings, nothing, code=str(package.model_code))
    return settings, access, session


def check_engine(settings: Settings) -> None:
    if settings.TRAINSHED_ENGINE not in members("engine"):
        names = ", ".join(members("engine"))
        raise UsageError(f"TRAINSHED_ENGINE is {settings.TRAINSHED_ENGINE!r}", f"choose one of {names}")


def run(package: Package, local_code: Path | None = None) -> Version:
    """Upload the code, submit the job, follow it to its end and fetch its results."""
    settings, _, session = prepare(package)
    client = Client()
    registry = Registry(client.home)
    version = _begin(registry, package, settings, session)
    upload_code(local_code or package.model_code, location(session.code_dir, "code_dir"))
    job = build_job(session, settings, version)
    with _signals() as signals:
        labels = {LABEL: str(version.id)} | nonce_label()
        request = client.request(job, labels=labels, emulate=settings.emulate)
        (started,) = client.start(request, settings.TRAINSHED_ENGINE)
        registry.started(version, started.id)
        print(f"jobname:{version.job_name} jobid:{version.job_id} versionid:{version.id} "
              f"version:V{version.number} run:{started.id}", flush=True)  # fmt: skip
        follow(package, settings, version, started, signals)
    return version


def again(package: Package) -> Version:
    """Take up the newest job of this package after a crash: follow it if it still runs, fetch its results."""
    settings, _, _ = prepare(package)
    client = Client()
    registry = Registry(client.home)
    version = registry.newest_of_package(package.root)
    found = version.find_run(client) if version else None
    if version is None or found is None:
        raise NotFoundError(f"no job of {package.root} is known", "start it with `ais-bench-stubs test`")
    if not version.run:
        registry.started(version, found.id)
    with _signals() as signals:
        follow(package, settings, version, found, signals)
    return version


def follow(package: Package, settings: Settings, version: Version, run: Run, signals: list[int]) -> None:
    """Sync logs and print states until the job has ended; then fetch results, or say why there are none."""
    logs = LogSync(run.directory, package.log)
    last: RunState | None = None
    while True:
        summary = run.refresh()
        logs.sync(final=summary.state.is_final)
        if summary.state is not last:
            last = summary.state
            print(f"jobname:{version.job_name} jobstatus:{status_name(version.api, last)}", flush=True)
        if summary.state.is_final:
            break
        if signals:
            run.stop("stopped with Ctrl-C")
            run.wait(_STOP_SECONDS)
            logs.sync(final=True)
            raise Stopped(f"job {version.label} was stopped", "run it again")
        run.wait(settings.TRAINSHED_POLL, until=lambda: bool(signals))
    if summary.state is not RunState.SUCCEEDED:
        raise JobFailed(_failure(version, summary), f"its logs: {package.log} and {run.path}")
    results.fetch(package, version, run.directory)


def stop(package: Package, job_id: str = "") -> bool:
    """Stop exactly one job: by its id, or the newest version of the name in the configuration."""
    settings = read_settings(package)
    _, session = read_modelarts(package, settings.MODELARTS_VERSION)
    client = Client()
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
    print(
        f"jobname:{version.job_name} jobid:{identity} preversionid:{version.id} "
        f"jobstatus:{status_name(version.api, before)} stop status:{{'is_success': {done}}}",
        flush=True,
    )
    return done


def stop_version(client: Client, version: Version, why: str = "train_modelarts.py --action stop") -> bool:
    """Stop the job of a version and wait for its end; False when there was nothing to stop."""
    run = version.find_run(client)
    if run is None or run.state.is_final:
        return False
    run.stop(f"stopped by {why}")
    return run.wait(_STOP_SECONDS).state.is_final


def newest(package: Package) -> Version | None:
    """The newest job of the package."""
    return Registry(Client().home).newest_of_package(package.root)


def still_runs(package: Package) -> bool:
    """Whether the newest job of the package still runs without a process following it."""
    version = newest(package)
    run = version.find_run(Client()) if version else None
    return run is not None and not run.state.is_final


def why_failed(version: Version) -> str:
    """The failing rank's last lines, or nothing if the job did not fail."""
    run = version.find_run(Client())
    summary = run.refresh() if run else None
    if summary is None or not summary.state.is_final or summary.state is RunState.SUCCEEDED:
        return ""
    return _failure(version, summary)


def _failure(version: Version, summary: Summary) -> str:
    lines = summary.failure.last_lines if summary.failure else ()
    shown = "".join(f"\n    {line}" for line in lines)
    return f"job {version.label} is {status_name(version.api, summary.state)}: {summary.reason}{shown}"


def _begin(registry: Registry, package: Package, settings: Settings, session: SessionConfig) -> Version:
    """A version whose output folder is fresh: nothing of an earlier job may be taken for this one's."""
    from trainshed.store import exists

    base = location(session.out_base_url, "out_base_url").rstrip("/")
    number = registry.next_number(session.job_name)
    api = settings.MODELARTS_VERSION
    if api == "V2":
        out = f"{base}/{session.job_name}{time.strftime('%Y_%m_%d-%H_%M_%S')}/"
        if exists(out):
            raise UsageError(f"{out} already exists", "wait a second and try again")
    else:
        while exists(f"{base}/V{number}/"):
            number += 1
            if number > _MOST_VERSIONS:
                raise UsageError(f"{base} holds too many versions", "choose another out_base_url")
        out = f"{base}/V{number}/"
    text = out if "://" in out else f"file://{out}"
    return registry.begin(session.job_name, number, api, text, package.root)


def upload_code(source: Path, target: str) -> None:
    """Make the code folder equal to the package's: what an earlier upload left does not survive."""
    from trainshed.store import copy

    # By force: files of a package have no times, so an equal size must not count as unchanged.
    copy(f"{source.resolve()}/", target.rstrip("/") + "/", delete=True, force=True)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Signals that ask for the end, gathered in a list instead of ending this process."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[int, Any] = {n: signal.signal(n, lambda number, _: received.append(number)) for n in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
