"""Runs whose truth lies elsewhere: in an object store, or in a home on another machine.

The folder here is then a mirror for readers, marked by `place.json`. The same
code serves every engine: it knows runs and places, not who runs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainshed.errors import NotFoundError, TrainshedError
from trainshed.files import read_regular
from trainshed.runs import documents
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import UnreadableRunError
from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause
from trainshed.runs.summary import EngineStatus

if TYPE_CHECKING:
    from trainshed import store

VERSION = 1
FILE = "place.json"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run lies: `url` in an object store, or `path` in the home of a site."""

    url: str = ""
    path: str = ""
    site: dict[str, Any] = field(default_factory=dict)
    """How the site is reached, see `trainshed.runs.site.RemoteSite`."""
    upload: str = ""
    """The folder at the site that holds what was uploaded for the run."""
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Access:
    """With whose keys a place is reached; by default those of this process."""

    environ: Mapping[str, str] | None = None
    home: Path | None = None

    def keys(self, url: str) -> store.Credentials | None:
        from trainshed import store

        scheme = url.partition(":")[0]
        if scheme not in ("s3", "obs"):
            return None
        return store.resolve(scheme, environ=self.environ, home=self.home)


OWN = Access()


def is_mirror(run: RunDirectory) -> bool:
    return (run.path / FILE).exists()


def mark(run: RunDirectory, place: RunPlace) -> None:
    """Make a run directory the mirror of a place."""
    run.write(FILE, json.dumps(asdict(place)))


def place_of(run: RunDirectory) -> RunPlace:
    try:
        place = documents.parse(read_regular(run.path / FILE), VERSION, lambda data: RunPlace(**data))
        if not all(isinstance(text, str) for text in (place.url, place.path, place.upload)):
            raise TypeError("a path is not text")
        if not isinstance(place.site, dict):
            raise TypeError("site is not a mapping")
        return place
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableRunError(
            f"run {run.id}: place.json cannot be read: {error}",
            f"`trainshed rm --force {run.id}` removes the copy on this machine",
        ) from error


def pull(run: RunDirectory, status: EngineStatus, access: Access = OWN) -> EngineStatus:
    """Fetch what was written since the last time; the status as the place knows it.

    A run that is gone from its place will not come back: it is not alive any more.
    """
    place = place_of(run)
    try:
        if place.url:
            from trainshed.runs import carrier

            carrier.pull(run, place.url, access.keys(place.url))
            return status
        from trainshed.runs import site

        return site.pull(run, place)
    except NotFoundError:
        where = place.url or f"{place.site.get('login', 'its site')}:{place.path}"
        failure = Failure(Cause.ENGINE, f"it was removed from {where} before its end was fetched")
        if place.url and status.alive:
            return EngineStatus(problem=f"it was removed from {where}, though its engine still has it")
        return EngineStatus(alive=False, failure=failure)


def publish(run: RunDirectory, *writers: str, access: Access = OWN) -> None:
    """Bring what this side recorded to the run's place, if that is an object store and has the run."""
    if not is_mirror(run) or not (url := place_of(run).url):
        return
    from trainshed import store

    keys = access.keys(url)
    if not store.exists(f"{url}/events/submit.jsonl", credentials=keys):
        return
    for writer in writers:
        name = f"events/{writer}.jsonl"
        store.write_bytes(f"{url}/{name}", (run.path / name).read_bytes(), credentials=keys)


def request_stop(run: RunDirectory, reason: str, user: str = "", access: Access = OWN) -> None:
    """Ask for the run's end where its driver hears it."""
    if not is_mirror(run):
        run.request_stop(reason, user)
        return
    place = place_of(run)
    if place.url:
        known = {path.name for path in run.events_folder.glob("stop-*.jsonl")}
        run.request_stop(reason, user)
        fresh = {path.stem for path in run.events_folder.glob("stop-*.jsonl") if path.name not in known}
        publish(run, *fresh, access=access)
        return
    from trainshed.runs import site

    site.stop(place, reason)


def forget(run: RunDirectory, access: Access = OWN) -> None:
    """Remove what lies at the run's place; what is gone already is no obstacle."""
    if not is_mirror(run):
        return
    place = place_of(run)
    try:
        if place.url:
            from trainshed import store

            store.remove(f"{place.url}/", recursive=True, credentials=access.keys(place.url))
        else:
            from trainshed.runs import site

            site.forget(place)
    except NotFoundError:
        return
    except TrainshedError as error:
        error.hint = error.hint or f"`trainshed rm --force {run.id}` removes only the copy on this machine"
        raise
