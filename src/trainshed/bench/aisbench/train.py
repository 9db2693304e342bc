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

from trainshed import axes
from trainshed.bench.aisbench import moving, results
from trainshed.bench.aisbench.config import Access, Package, Session, Settings, read_modelarts, read_settings
from trainshed.bench.aisbench.job import build_job, entry_of, place
from trainshed.bench.aisbench.logsync import LogSync
from trainshed.bench.aisbench.registry import Registry, Version
from trainshed.bench.aisbench.status import word
from trainshed.engines._asking import engine_of, state_of
from trainshed.engines.base import Engine, Request
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.states import RunState
from trainshed.runs.summary import Summary

_STOP_SECONDS = 120.0
_MOST_VERSIONS = 100_000


class JobFailed(TrainshedError):
    """The training job did not end well."""

    code = "job-failed"


class Stopped(TrainshedError):
    """Somebody stopped the job through us."""

    code = "stopped"
    exit_code = 130


def prepare(package: Package) -> tuple[Settings, Access, Session]:
    """Read and check everything that can be wrong before anything is started."""
    settings = read_settings(package)
    access, session = read_modelarts(package, settings.MODELARTS_VERSION)
    moving.use(access)
    if settings.TRAINSHED_ENGINE not in axes.members("engine"):
        names = ", ".join(axes.members("engine"))
        raise UsageError(f"TRAINSHED_ENGINE is {settings.TRAINSHED_ENGINE!r}", f"choose one of {names}")
    boot = package.model_code / entry_of(session)
    if not boot.is_file():
        raise NotFoundError(f"boot_file: {boot} does not exist", "correct boot_file in modelarts_config.py")
    nothing = Version(
        0, 0, session.job_name, 0, settings.MODELARTS_VERSION, "job0", session.out_base_url, "", ""
    )
    build_job(session, settings, nothing, code=str(package.model_code))
    return settings, access, session


def run(package: Package, local_code: Path | None = None) -> Version:
    """Upload the code, submit the job, follow it to its end and fetch its results."""
    settings, _, session = prepare(package)
    engine = axes.load("engine", settings.TRAINSHED_ENGINE)
    registry = Registry()
    version = _begin(registry, package, settings, session)
    _upload_code(local_code or package.model_code, place(session.code_dir, "code_dir"))
    job = build_job(session, settings, version)
    with _signals() as asked:
        started = engine.submit(Request(job, emulate=settings.emulate, attached=False))
        registry.started(version, started.id)
        print(f"jobname:{version.job_name} jobid:{version.job_id} versionid:{version.id} "
              f"version:V{version.number} run:{started.id}", flush=True)  # fmt: skip
        follow(package, settings, engine, version, started, asked)
    return version


def again(package: Package) -> Version:
    """Take up the newest job of this package after a crash: follow it if it still runs, fetch its results."""
    settings, _, _ = prepare(package)
    version = Registry().newest_of_package(package.root)
    run_directory = version.directory() if version else None
    if version is None or run_directory is None:
        raise NotFoundError(f"no job of {package.root} is known", "start it with `ais-bench-stubs test`")
    if not version.run:
        Registry().started(version, run_directory.id)
    with _signals() as asked:
        follow(package, settings, engine_of(run_directory), version, run_directory, asked)
    return version


def follow(
    package: Package,
    settings: Settings,
    engine: Engine,
    version: Version,
    run: RunDirectory,
    asked: list[int],
) -> None:
    """Sync logs and tell states until the job has ended; then fetch results, or say why there are none."""
    logs = LogSync(run, package.log)
    last: RunState | None = None
    while True:
        summary = state_of(run)
        logs.sync(final=summary.state.is_final)
        if summary.state is not last:
            last = summary.state
            print(f"jobname:{version.job_name} jobstatus:{word(version.api, last)}", flush=True)
        if summary.state.is_final:
            break
        if asked:
            _stop_and_wait(engine, run, "stopped with Ctrl-C")
            logs.sync(final=True)
            raise Stopped(f"job {version.label} was stopped", "run it again when you like")
        _wait(settings.TRAINSHED_POLL, asked)
    if summary.state is not RunState.SUCCEEDED:
        lines = summary.outcome.failure.last_lines if summary.outcome and summary.outcome.failure else ()
        words = "".join(f"\n    {line}" for line in lines)
        text = f"job {version.label} is {word(version.api, summary.state)}: {summary.reason}{words}"
        raise JobFailed(text, f"its logs: {package.log} and {run.path}")
    results.fetch(package, version, run)


def stop(package: Package, job_id: str = "") -> bool:
    """Stop exactly one job: by its id, or the newest version of the name in the configuration."""
    settings = read_settings(package)
    _, session = read_modelarts(package, settings.MODELARTS_VERSION)
    registry = Registry()
    version = registry.by_id(job_id) if job_id else registry.newest(session.job_name)
    if version is None:
        what = f"job id {job_id!r}" if job_id else f"job_name {session.job_name!r}"
        raise NotFoundError(f"no job is known by {what}", "nothing was stopped")
    run = version.directory()
    if run is None:
        raise NotFoundError(f"the run of {version.label} is not here any more", "nothing was stopped")
    engine = engine_of(run)
    before = state_of(run).state
    done = False
    if not before.is_final:
        done = _stop_and_wait(engine, run, "stopped by train_modelarts.py --action stop").state.is_final
    identity = version.job_id if version.api == "V1" else version.resource
    print(
        f"jobname:{version.job_name} jobid:{identity} preversionid:{version.id} "
        f"jobstatus:{word(version.api, before)} stop status:{{'is_success': {done}}}",
        flush=True,
    )
    return done


def still_runs(package: Package) -> bool:
    """Whether the newest job of the package goes on without anybody following it."""
    version = Registry().newest_of_package(package.root)
    run = version.directory() if version else None
    return run is not None and not state_of(run).state.is_final


def _stop_and_wait(engine: Engine, run: RunDirectory, reason: str) -> Summary:
    engine.stop(run, reason)
    deadline = time.monotonic() + _STOP_SECONDS
    while not (summary := state_of(run)).state.is_final and time.monotonic() < deadline:
        time.sleep(0.1)
    return summary


def _begin(registry: Registry, package: Package, settings: Settings, session: Session) -> Version:
    """A version whose output folder is fresh: nothing of an earlier job may be taken for this one's."""
    from trainshed.store import exists

    base = place(session.out_base_url, "out_base_url").rstrip("/")
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


def _upload_code(source: Path, target: str) -> None:
    """Make the code folder equal to the package's: what an earlier upload left does not survive."""
    from trainshed.store import copy

    # By force: files of a package have no times, so an equal size must not count as unchanged.
    copy(f"{source.resolve()}/", target.rstrip("/") + "/", delete=True, force=True)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Signals that ask for the end, gathered in a list instead of ending this process."""
    asked: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[int, Any] = {n: signal.signal(n, lambda number, _: asked.append(number)) for n in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(seconds: float, asked: list[int]) -> None:
    deadline = time.monotonic() + seconds
    while not asked and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.1))
