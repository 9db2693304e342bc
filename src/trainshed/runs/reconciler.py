"""Concludes what no process of a run can record any more, and fetches what is elsewhere.

Reading a run never writes; this does, explicitly, one process at a time per run
(whoever comes second leaves it to the first): a mirror is brought up to date, a
run that was put back into its engine's queue is said to wait, what hangs of a run
or was left by a dead one is ended by its engine, and a run whose processes are
gone gets its final state. A run in a server's queue has no processes and is not
gone: only a stop ends it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainshed.access import StoreAccess
from trainshed.errors import TrainshedError
from trainshed.files import hold
from trainshed.runs import locations
from trainshed.runs.directory import RunDirectory, finished
from trainshed.runs.events import AttemptStarted, Pending, UnreadableRunError
from trainshed.runs.summary import EngineStatus, conclude, is_queued, started_at

REQUEUED = "its nodes were taken away; the engine will start it again"
_log = logging.getLogger(__name__)


def reconcile(
    run: RunDirectory,
    status: EngineStatus,
    access: StoreAccess,
    clear_up: Callable[[RunDirectory, EngineStatus], None] = lambda *_: None,
) -> EngineStatus:
    """Record what the engine's status implies; gives the status as it stands afterwards.

    `clear_up` is the engine's: it ends what hangs of a run, or what a dead one left, before an end is recorded.
    """
    if locations.is_mirror(run):
        locations.location_of(run)  # what cannot be read is left as it is
    with _alone(run) as alone:
        if not alone or run.end():
            return status
        if locations.is_mirror(run):
            status = _mirror(run, status, access)
            if run.end():
                return status
        if status.problem:
            return status
        if status.queued and not status.alive:
            return _leave_queued(run, access)
        if not locations.is_mirror(run):
            clear_up(run, status)
        if status.requeued:
            _wait_again(run, access)
        elif not status.alive:
            _end(run, status, access)
    return status


def _leave_queued(run: RunDirectory, access: StoreAccess) -> EngineStatus:
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


def _mirror(run: RunDirectory, status: EngineStatus, access: StoreAccess) -> EngineStatus:
    try:
        return locations.pull(run, status, access)
    except UnreadableRunError:
        raise  # it will not get better by waiting
    except TrainshedError as error:
        return EngineStatus(alive=True, problem=error.message)


def _wait_again(run: RunDirectory, access: StoreAccess) -> None:
    events = run.events()
    attempt = max((e.body.attempt for e in events if isinstance(e.body, AttemptStarted)), default=0)
    if not any(isinstance(e.body, Pending) and e.body.attempt == attempt for e in events):
        run.writer("reconciler").append(Pending(REQUEUED, attempt))
        _publish(run, "reconciler", access)


def _end(run: RunDirectory, status: EngineStatus, access: StoreAccess) -> None:
    events = run.events()
    attempt = max((e.body.attempt for e in events if isinstance(e.body, AttemptStarted)), default=0)
    outcome = conclude(run, status)
    if run.record_end(finished(run, outcome, started_at(events), max(1, attempt))):
        _log.info("run %s: recorded as %s", run.id, outcome.state.value)
        _publish(run, "end", access)


def _publish(run: RunDirectory, writer: str, access: StoreAccess) -> None:
    """Also at the run's place; out of reach, it stays recorded here, and one run holds up no other."""
    try:
        locations.publish(run, access, writer)
    except TrainshedError as error:
        _log.warning("run %s: its state was not uploaded to its location: %s", run.id, error)


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
