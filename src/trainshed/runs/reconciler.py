"""Concludes what no process of a run can record any more, and fetches what lies elsewhere.

Reading a run never writes; this does, explicitly, one process at a time per run
(whoever comes second leaves it to the first): a mirror is brought up to date, a
run that was put back into its engine's queue is said to wait, and a run whose
processes are gone gets its final state. A run in a server's queue has no
processes and is not gone: only a stop ends it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trainshed.errors import TrainshedError
from trainshed.files import hold
from trainshed.runs import places
from trainshed.runs.directory import RunDirectory, finished
from trainshed.runs.events import AttemptStarted, Pending
from trainshed.runs.summary import EngineStatus, conclude, is_queued, started_at

REQUEUED = "its nodes were taken away; the engine will start it again"
_log = logging.getLogger(__name__)


def reconcile(run: RunDirectory, status: EngineStatus, access: places.Access = places.OWN) -> EngineStatus:
    """Record what the engine's status implies; gives the status as it stands afterwards."""
    with _alone(run) as alone:
        if not alone or run.end():
            return status
        if places.is_mirror(run):
            status = _mirror(run, status, access)
            if run.end():
                return status
        if status.problem:
            return status
        if status.queued and not status.alive:
            return _leave_queued(run, access)
        if status.requeued:
            _wait_again(run, access)
        elif not status.alive:
            _end(run, status, access)
    return status


def _leave_queued(run: RunDirectory, access: places.Access) -> EngineStatus:
    """A queued run goes on waiting, unless somebody stopped it; never while a launch is under way."""
    if not run.stop_reason():
        return EngineStatus()
    handle = hold(run.alive_path)
    if handle is None:
        return EngineStatus()
    try:
        if is_queued(run):
            _end(run, EngineStatus(alive=False), access)
    finally:
        os.close(handle)
    return EngineStatus(alive=False)


def _mirror(run: RunDirectory, status: EngineStatus, access: places.Access) -> EngineStatus:
    try:
        return places.pull(run, status, access)
    except TrainshedError as error:
        return EngineStatus(alive=True, problem=error.message)


def _wait_again(run: RunDirectory, access: places.Access) -> None:
    events = run.events()
    attempt = max((e.body.attempt for e in events if isinstance(e.body, AttemptStarted)), default=0)
    if not any(isinstance(e.body, Pending) and e.body.attempt == attempt for e in events):
        run.writer("reconciler").append(Pending(REQUEUED, attempt))
        _publish(run, "reconciler", access)


def _end(run: RunDirectory, status: EngineStatus, access: places.Access) -> None:
    events = run.events()
    attempt = max((e.body.attempt for e in events if isinstance(e.body, AttemptStarted)), default=0)
    outcome = conclude(run, status)
    if run.record_end(finished(run, outcome, started_at(events), max(1, attempt))):
        _log.info("run %s: recorded as %s", run.id, outcome.state.value)
        _publish(run, "end", access)


def _publish(run: RunDirectory, writer: str, access: places.Access) -> None:
    """Also at the run's place; out of reach, it stays recorded here, and one run holds up no other."""
    try:
        places.publish(run, writer, access=access)
    except TrainshedError as error:
        _log.warning("run %s: what was concluded was not brought to its place: %s", run.id, error)


@contextmanager
def _alone(run: RunDirectory) -> Iterator[bool]:
    try:
        handle = hold(run.path / "reconcile.lock")
    except OSError:  # removed meanwhile, or not ours to write
        yield False
        return
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)
