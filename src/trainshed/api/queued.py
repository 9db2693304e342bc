"""A submission in two steps, for a server with a queue: `accept` now, `launch` when its turn comes.

Killed between any two steps, the record stays true: accepted is one write; a run
counts as started only when its driver says so, and whoever launches holds the
lock that the driver inherits. So a launch that was interrupted is made again,
and none is made twice.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainshed import files, registry
from trainshed.engines.base import Context, Engine, Prepared, Request
from trainshed.errors import RefusedError, UsageError
from trainshed.runs.directory import RunDirectory, Runs, finished
from trainshed.runs.events import Launched, Queued, Submitted
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause
from trainshed.runs.summary import is_queued
from trainshed.spec.load import dump_job, load_job

WAITS = "waits for its turn in the queue"
BUSY = "devices-busy"
"""The code of a refusal that passes when other runs end."""


def create(runs: Runs, name: str, count: int, ids: Sequence[str]) -> list[RunDirectory]:
    """Fresh run directories, of these ids if some are given."""
    if not ids:
        return runs.create(name, count)
    runs.root.mkdir(parents=True, exist_ok=True)
    found = [RunDirectory(runs.root / name) for name in ids]
    for run in found:
        try:
            run.path.mkdir()
        except FileExistsError as error:
            raise UsageError(f"there is a run called {run.id} already", "submit again") from error
    return found


def submitted(request: Request, engine: Engine) -> Submitted:
    """The first event of a run, as far as the request tells."""
    job = request.job
    return Submitted(
        name=job.name,
        engine=engine.name,
        shape=job.resources.shape,
        launcher=job.launcher,
        contract=job.contract,
        emulated=request.emulated,
        user=request.context.user,
        team=request.context.team,
        labels=dict(request.labels),
    )


def accept(runs: Runs, request: Request, engine: str, reason: str, ids: Sequence[str]) -> RunDirectory:
    """The directory of a run that waits."""
    member: Engine = registry.load("engine", engine)
    if member.count(request) != 1 or len(ids) > 1:
        raise UsageError("a queue takes one run at a time", "submit the job several times")
    _check(member, request, RunDirectory(runs.root / f"{request.job.name}-preview"))
    (run,) = create(runs, request.job.name, 1, ids)
    try:
        run.write("job.yaml", dump_job(request.job))
        run.writer("submit").append(submitted(request, member), Queued(reason, dict(request.options)))
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def launch(run: RunDirectory, context: Context, secrets: Mapping[str, str] | None) -> bool:
    lock = files.hold(run.alive_path)
    if lock is None:
        return False
    prepared: Prepared | None = None
    try:
        if not is_queued(run) or run.stop_reason():
            return False
        os.ftruncate(lock, 0)  # of a driver that did not begin
        request = _request(run, context, secrets)
        member: Engine = registry.load("engine", run.submission().engine)
        prepared = member.prepare(request, [run])
        if prepared.is_final:
            run.write("plan.json", json.dumps(prepared.plan.to_json()))
        run.writer("submit").append(Launched(prepared.isolation, dict(prepared.settings)))
        member.launch(prepared, [run], [lock])
        return True
    finally:
        if prepared:
            prepared.close()
        os.close(lock)


def refuse(run: RunDirectory, reason: str) -> bool:
    lock = files.hold(run.alive_path)
    if lock is None:
        return False
    try:
        if not is_queued(run):
            return False
        outcome = Outcome.of(Failure(Cause.ENGINE, reason))
        return run.record_end(finished(run, outcome, None, 1))
    finally:
        os.close(lock)


def _request(run: RunDirectory, context: Context, secrets: Mapping[str, str] | None) -> Request:
    """The request again, for the user and team who made it."""
    body, waiting = run.submission(), run.queued()
    return Request(
        load_job(run.path / "job.yaml"),
        replace(context, user=body.user, team=body.team),
        emulate=body.emulated,
        options=dict(waiting.options) if waiting else {},
        labels=body.labels,
        secrets=secrets,
    )


def _check(engine: Engine, request: Request, preview: RunDirectory) -> None:
    """Refuse now what would be refused later; that devices are busy is what a queue is for."""
    try:
        engine.prepare(request, [preview]).close()
    except RefusedError as error:
        if error.code != BUSY:
            raise
