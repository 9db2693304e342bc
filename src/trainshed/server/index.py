"""The index of run directories: what lists, filters and searches need. The directories stay the truth.

A row is made from a directory and can be made again; nothing is in it that the
directory does not say, but for the queue's current reason.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, delete, func, insert, select, text, tuple_, update

from trainshed.errors import TrainshedError, UsageError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import UnreadableRunError
from trainshed.runs.states import RunState
from trainshed.runs.summary import Summary, is_queued, summarise, unreadable
from trainshed.server.accounts.audit import printable
from trainshed.server.accounts.identity import Identity
from trainshed.server.database import Database
from trainshed.server.database.schema import run_labels, runs
from trainshed.spec.load import load_fields
from trainshed.spec.values import parse_shape

LARGEST_PAGE = 200
_CHANGING = ("state", "reason", "attempt", "exit_code", "started", "ended", "is_final", "is_queued")
Row = dict[str, Any]


@dataclass(frozen=True)
class RunFilter:
    """Which runs are wanted."""

    state: RunState | None = None
    owner: str = ""
    team: str = ""
    name: str = ""
    text: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunIndex:
    """The rows of one database."""

    database: Database
    _adding: threading.Lock = field(default_factory=threading.Lock)
    """The loop and a request may index the same new run: one after the other."""

    def add(self, found: Sequence[RunDirectory]) -> int:
        """Index directories; one that has a row gets a new one."""
        with self._adding, self.database.write() as connection:
            rows = [row for run in found if (row := row_of(run)) is not None]
            for row in rows:
                connection.execute(delete(runs).where(runs.c.id == row["id"]))
            if rows:
                connection.execute(insert(runs), rows)
            labels = [
                {"run_id": row["id"], "name": name, "value": value}
                for row in rows
                for name, value in json.loads(row["labels"]).items()
            ]
            if labels:
                connection.execute(insert(run_labels), labels)
        return len(rows)

    def clear(self) -> None:
        with self.database.write() as connection:
            connection.execute(delete(run_labels))
            connection.execute(delete(runs))

    def remove(self, run: str) -> None:
        with self.database.write() as connection:
            connection.execute(delete(runs).where(runs.c.id == run))

    def ids(self) -> set[str]:
        with self.database.read() as connection:
            return set(connection.scalars(select(runs.c.id)))

    def live(self) -> list[Row]:
        """Runs that have not ended, in the order of their submission."""
        query = select(runs).where(runs.c.is_final.is_(False)).order_by(runs.c.submitted, runs.c.id)
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def update(self, changed: Mapping[str, Mapping[str, Any]]) -> None:
        """New values for rows of live runs; one that was seen to end meanwhile stays so."""
        with self.database.write() as connection:
            for run, values in changed.items():
                living = (runs.c.id == run) & runs.c.is_final.is_(False)
                connection.execute(update(runs).where(living).values(dict(values)))

    def get(self, run: str, who: Identity) -> Row | None:
        """A run that somebody may see; None for one that is foreign or missing."""
        query = _seen(select(runs).where(runs.c.id == printable(run, 128)), who)
        with self.database.read() as connection:
            row = connection.execute(query).mappings().first()
        return dict(row) if row else None

    def page(
        self, who: Identity, wanted: RunFilter, after: str = "", limit: int = 50
    ) -> tuple[list[Row], str]:
        """Runs that somebody may see, newest first, and the key of the next page (empty: none)."""
        limit = max(1, min(limit, LARGEST_PAGE))
        query = _seen(select(runs), who).order_by(runs.c.submitted.desc(), runs.c.id.desc())
        if after:
            query = query.where(tuple_(runs.c.submitted, runs.c.id) < tuple_(*_position(after)))
        for column, value in (("owner", wanted.owner), ("team", wanted.team), ("name", wanted.name)):
            if value:
                query = query.where(runs.c[column] == printable(value, 128))
        if wanted.state:
            query = query.where(runs.c.state == wanted.state.value)
        for name, value in wanted.labels.items():
            marked = select(run_labels.c.run_id).where(
                run_labels.c.name == printable(name, 64), run_labels.c.value == printable(value, 256)
            )
            query = query.where(runs.c.id.in_(marked))
        if wanted.text:
            query = self._matching(query, printable(wanted.text, 100).lower())
        with self.database.read() as connection:
            rows = [dict(row) for row in connection.execute(query.limit(limit + 1)).mappings()]
        more = len(rows) > limit
        return rows[:limit], _key(rows[limit - 1]) if more else ""

    def counts(self) -> dict[str, int]:
        """How many runs are in each state."""
        query = select(runs.c.state, func.count()).group_by(runs.c.state)
        with self.database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def _matching(self, query: Select[Any], words: str) -> Select[Any]:
        """Runs whose text contains the words; from three letters on an index helps."""
        if self.database.is_sqlite and len(words) >= 3:
            phrase = '"' + words.replace('"', '""') + '"'
            return query.where(
                text(
                    "runs.rowid IN (SELECT rowid FROM runs_search WHERE runs_search MATCH :phrase)"
                ).bindparams(phrase=phrase)
            )
        return query.where(runs.c.search.contains(words, autoescape=True))


def row_of(run: RunDirectory) -> Row | None:
    """The row of a directory; None for a folder in which nothing was recorded (yet)."""
    if not run.is_recorded():
        return None
    try:
        summary, team, queued = summarise(run), run.submission().team, is_queued(run)
    except (TrainshedError, OSError) as error:
        try:
            summary, team, queued = unreadable(run, error), "", False
        except OSError:
            return None  # removed meanwhile
    fields = _job(run)
    kind, devices = _resources(fields.get("resources"))
    words = [run.id, summary.name, summary.user, *(f"{n}={v}" for n, v in summary.labels.items())]
    return {
        "id": run.id,
        "owner": summary.user,
        "team": team,
        "name": summary.name,
        "engine": summary.engine,
        "shape": summary.shape,
        "kind": kind,
        "devices": devices,
        "emulated": summary.emulated,
        "labels": json.dumps(summary.labels),
        "search": printable(" ".join(words), 4000).lower(),
        "submitted": summary.submitted or 0.0,
        "priority": fields["priority"] if isinstance(fields.get("priority"), int) else 100,
        "preemptible": fields.get("preemptible") is True,
    } | changing(summary, queued)


def changing(summary: Summary, queued: bool) -> Row:
    """What changes in a row while its run lives."""
    return {
        "state": summary.state.value,
        "reason": printable(summary.reason, 2000),
        "attempt": summary.attempt,
        "exit_code": summary.exit_code if summary.state.is_final else None,
        "started": summary.started,
        "ended": summary.ended,
        "is_final": summary.state.is_final,
        "is_queued": queued,
    }


def differs(row: Row, values: Row) -> bool:
    return any(row[name] != values[name] for name in _CHANGING if name in values)


def _seen(query: Select[Any], who: Identity) -> Select[Any]:
    return query if who.is_admin else query.where(runs.c.team.in_(sorted(who.teams)))


def _job(run: RunDirectory) -> dict[str, Any]:
    try:
        return load_fields(run.path / "job.yaml")
    except (UsageError, UnreadableRunError):
        return {}


def _resources(found: object) -> tuple[str, int]:
    """Kind and number of devices that a job asked for."""
    try:
        shape = parse_shape(found) if isinstance(found, str) else found
        if isinstance(shape, Mapping):
            return str(shape.get("kind", "cpu")), int(shape.get("nodes", 1)) * int(shape.get("devices", 1))
    except (ValueError, TypeError):
        pass
    return "cpu", 1


def _key(row: Row) -> str:
    return base64.urlsafe_b64encode(json.dumps([row["submitted"], row["id"]]).encode()).decode()


def _position(key: str) -> tuple[float, str]:
    try:
        submitted, run = json.loads(base64.urlsafe_b64decode(key.encode()))
        if not isinstance(run, str) or not isinstance(submitted, float) or not math.isfinite(submitted):
            raise ValueError("not a position")
        return submitted, printable(run, 128)
    except (ValueError, TypeError, binascii.Error, OverflowError, RecursionError) as error:
        raise UsageError("after: invalid key", "use the `next` of the page before") from error
