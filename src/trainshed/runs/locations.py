"""Runs whose files are elsewhere: in an object store, or in a home on another machine.

The local folder is then a mirror for readers, marked by `place.json`. The same
code serves every engine: it knows runs and locations, not who runs them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from trainshed.access import StoreAccess
from trainshed.errors import NotFoundError, TrainshedError
from trainshed.files import read_regular
from trainshed.runs import documents
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import UnreadableRunError
from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause
from trainshed.runs.summary import EngineStatus

VERSION = 1
FILE = "place.json"


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Where a run's files are: `url` in an object store, or `path` in the home of a site."""

    url: str = ""
    path: str = ""
    site: dict[str, Any] = field(default_factory=dict)
    """How the site is reached, see `trainshed.runs.site.RemoteSite`."""
    upload: str = ""
    """The folder at the site that holds what was uploaded for the run."""
    version: int = VERSION


def is_mirror(run: RunDirectory) -> bool:
    return (run.path / FILE).exists()


def make_mirror(run: RunDirectory, location: RunLocation) -> None:
    """Make a run directory the mirror of a location."""
    run.write(FILE, json.dumps(asdict(location)))


def location_of(run: RunDirectory) -> RunLocation:
    try:
        location = documents.parse(read_regular(run.path / FILE), VERSION, lambda data: RunLocation(**data))
        if not all(isinstance(text, str) for text in (location.url, location.path, location.upload)):
            raise TypeError("a path is not text")
        if not isinstance(location.site, dict):
            raise TypeError("site is not a mapping")
        return location
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableRunError(
            f"run {run.id}: place.json cannot be read: {error}",
            f"`trainshed rm --force {run.id}` removes the copy on this machine",
        ) from error


def pull(run: RunDirectory, status: EngineStatus, access: StoreAccess) -> EngineStatus:
    """Fetch what was written since the last time; the status as the place knows it.

    A run that is gone from its location will not come back: it is no longer alive.
    """
    location = location_of(run)
    try:
        if location.url:
            from trainshed.runs import store_sync

            store_sync.pull(run, location.url, access.keys(location.url))
            return status
        from trainshed.runs import site

        return site.pull(run, location)
    except NotFoundError:
        where = location.url or f"{location.site.get('login', 'its site')}:{location.path}"
        failure = Failure(Cause.ENGINE, f"it was removed from {where} before its end was fetched")
        if location.url and status.alive:
            return EngineStatus(problem=f"it was removed from {where}, though its engine still has it")
        return EngineStatus(alive=False, failure=failure)


def publish(run: RunDirectory, access: StoreAccess, *writers: str) -> None:
    """Bring what this side recorded to the run's place, if that is an object store and has the run."""
    if not is_mirror(run) or not (url := location_of(run).url):
        return
    from trainshed import store

    keys = access.keys(url)
    if not store.exists(f"{url}/events/submit.jsonl", credentials=keys):
        return
    for writer in writers:
        name = f"events/{writer}.jsonl"
        store.write_bytes(f"{url}/{name}", (run.path / name).read_bytes(), credentials=keys)


def request_stop(run: RunDirectory, reason: str, user: str, access: StoreAccess) -> None:
    """Ask for the run's end where its driver hears it."""
    if not is_mirror(run):
        run.request_stop(reason, user)
        return
    location = location_of(run)
    if location.url:
        known = {path.name for path in run.events_folder.glob("stop-*.jsonl")}
        run.request_stop(reason, user)
        fresh = {path.stem for path in run.events_folder.glob("stop-*.jsonl") if path.name not in known}
        publish(run, access, *fresh)
        return
    from trainshed.runs import site

    site.stop(location, reason)


def remove(run: RunDirectory, access: StoreAccess) -> None:
    """Remove the run at its location; what is already gone is ignored."""
    if not is_mirror(run):
        return
    location = location_of(run)
    try:
        if location.url:
            from trainshed import store

            store.remove(f"{location.url}/", recursive=True, credentials=access.keys(location.url))
        else:
            from trainshed.runs import site

            site.forget(location)
    except NotFoundError:
        return
    except TrainshedError as error:
        error.hint = error.hint or f"`trainshed rm --force {run.id}` removes only the copy on this machine"
        raise
