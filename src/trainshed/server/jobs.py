"""Jobs, as every door of the server does them: submit, list, show, stop, delete, clone; with who may.

What belongs to other teams and what does not exist are answered with the same words.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, select, update

from trainshed.agent import sandbox
from trainshed.api import Run
from trainshed.engines.base import Request
from trainshed.errors import NotFoundError, RefusedError, UsageError
from trainshed.runs.directory import RunDirectory
from trainshed.server.accounts import audit
from trainshed.server.accounts.identity import DeniedError, Identity
from trainshed.server.accounts.keyring import Keyring
from trainshed.server.accounts.people import ConflictError
from trainshed.server.contexts import Contexts
from trainshed.server.database import Database
from trainshed.server.database.schema import idempotency
from trainshed.server.index import Row, RunIndex
from trainshed.server.loop import Loop
from trainshed.server.rules import check_job, secret_names
from trainshed.server.uploads import CodeUploads
from trainshed.spec.load import load_fields

_KEPT = 7 * 86400.0
"""Seconds for which an idempotency key is remembered."""


@dataclass(frozen=True)
class SubmitRequest:
    """What somebody wants to run, as it came in."""

    job: Mapping[str, Any]
    files: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    team: str | None = None
    engine: str = "local"
    shape: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    emulate: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()


@dataclass(frozen=True)
class Jobs:
    """The jobs of one server."""

    database: Database
    contexts: Contexts
    index: RunIndex
    keyring: Keyring
    uploads: CodeUploads
    loop: Loop
    _once: threading.Lock = field(default_factory=threading.Lock)

    def preview(self, who: Identity, wanted: SubmitRequest) -> dict[str, Any]:
        """The plan of a submission that does not happen."""
        request = self._request(who, wanted)
        prepared = self.contexts.client(who.name, request.context.team).plan(request, wanted.engine)
        plan: dict[str, Any] = prepared.plan.to_json()
        return plan

    def submit(self, who: Identity, wanted: SubmitRequest, key: str = "") -> str:
        """The id of the new run; with `key` that of the run which the same key made before."""
        request = self._request(who, wanted)
        if not key:
            return self._accept(who, request, wanted.engine, "")
        with self._once:
            run = self._claim(who, key, wanted, request)
            directory = RunDirectory(self.contexts.home / "runs" / run)
            if directory.is_recorded():
                return run
            # The server was killed while it made this run: nothing was recorded, nobody else makes it.
            shutil.rmtree(directory.path, ignore_errors=True)
            return self._accept(who, request, wanted.engine, run)

    def get(self, who: Identity, run: str) -> Row:
        row = self.index.get(run, who)
        if row is None:
            raise no_such_run(run)
        return row

    def handle(self, who: Identity, run: str) -> Run:
        """The run itself, for reading what its directory holds."""
        row = self.get(who, run)
        directory = RunDirectory(self.contexts.home / "runs" / row["id"])
        if not directory.path.is_dir():
            raise no_such_run(run)
        return Run(self.contexts.client(who.name, row["team"]), directory)

    def stop(self, who: Identity, run: str, reason: str) -> None:
        found = self._changeable(who, run)
        found.stop(audit.printable(reason, 500) or "stopped")
        self.index.add([found.directory])
        self._record(who, "run.stop", run)
        self.loop.wake()

    def delete(self, who: Identity, run: str) -> None:
        found = self._changeable(who, run)
        self.contexts.client(who.name, "").remove(found)
        with self.database.write() as connection:
            # A late repetition of its submission must not make it again.
            connection.execute(update(idempotency).where(idempotency.c.run_id == run).values(run_id=""))
        self.index.remove(run)
        self._record(who, "run.delete", run)

    def clone(self, who: Identity, run: str, changes: Mapping[str, Any], team: str | None = None) -> str:
        """Submit the job of a run again, with other values for some of its fields, and the same code."""
        check_job(changes)
        source = self.handle(who, run)
        row, fields = self.get(who, run), load_fields(source.path / "job.yaml")
        code = fields.pop("code", None)
        check_job(fields)
        if code is not None and not Path(str(code)).is_relative_to(self.uploads.folder):
            raise RefusedError(f"run {run} was not submitted over HTTP", "submit its job file")
        wanted = SubmitRequest(
            fields | dict(changes),
            team=team or (row["team"] if row["team"] in who.teams else None),
            engine=row["engine"],
            labels=json.loads(row["labels"]),
            emulate=row["emulated"],
        )
        return self._accept(who, self._request(who, wanted, code), wanted.engine, "")

    def _changeable(self, who: Identity, run: str) -> Run:
        row = self.get(who, run)
        if not who.may_change(row["owner"], row["team"]):
            raise DeniedError(
                f"run {run} is {row['owner']}'s", "ask its owner or an administrator of the team"
            )
        return self.handle(who, run)

    def _request(self, who: Identity, wanted: SubmitRequest, code: str | None = None) -> Request:
        team = who.team(wanted.team)
        check_job(wanted.job)
        if wanted.options and not who.is_admin:
            raise DeniedError("options of the engine are an administrator's to set", "leave them out")
        if wanted.engine == "local" and not who.is_admin and (why := sandbox.why_not()):
            raise RefusedError(
                f"jobs of others than administrators need isolation, and this machine has none: {why}",
                "ask an administrator to install bubblewrap on the server's machine",
            )
        if wanted.files:
            code = str(self.uploads.tree(who.name, wanted.files))
        fields = dict(wanted.job) | ({"code": code} if code else {})
        client = self.contexts.client(who.name, team)
        request = client.request(
            fields, shape=wanted.shape, labels=wanted.labels, emulate=wanted.emulate, options=wanted.options
        )
        names = secret_names(request.job)
        values = self.keyring.secret_values(who.name, names.values()) if names else {}
        return replace(request, secrets={name: values[stored] for name, stored in names.items()})

    def _accept(self, who: Identity, request: Request, engine: str, run: str) -> str:
        client = self.contexts.client(who.name, request.context.team)
        accepted = client.accept(request, engine, ids=[run] if run else [])
        self.index.add([accepted.directory])
        self._record(who, "run.submit", accepted.id, request.context.team)
        self.loop.wake()
        return accepted.id

    def _claim(self, who: Identity, key: str, wanted: SubmitRequest, request: Request) -> str:
        """The run id that belongs to a key: recorded before the run is made, so that a retry makes none."""
        if len(key) > 128 or not key.isprintable():
            raise UsageError("Idempotency-Key: invalid", "use up to 128 printable characters")
        digest = wanted.digest()
        with self.database.write() as connection:
            connection.execute(delete(idempotency).where(idempotency.c.created < time.time() - _KEPT))
            row = connection.execute(
                select(idempotency).where(idempotency.c.user_id == who.id, idempotency.c.key == key)
            ).first()
            if row is not None and row.digest != digest:
                raise ConflictError(
                    f"Idempotency-Key {key!r:.80} was used for another request", "use a new key"
                )
            if row is not None and not row.run_id:
                raise ConflictError(f"the run of Idempotency-Key {key!r:.80} was removed", "use a new key")
            if row is not None:
                return str(row.run_id)
            stamp = time.strftime("%Y%m%d-%H%M%S")
            run = f"{request.job.name}-{stamp}-{secrets.token_hex(4)}"
            entry = {"user_id": who.id, "key": key, "digest": digest, "run_id": run, "created": time.time()}
            connection.execute(insert(idempotency).values(entry))
        return run

    def _record(self, who: Identity, action: str, run: str, team: str = "") -> None:
        with self.database.write() as connection:
            audit.record(connection, who, action, run, team=team)


def no_such_run(run: str) -> NotFoundError:
    return NotFoundError(f"no such run: {run!r:.120}", "`trainshed ps -a` lists yours")


def public(row: Row) -> dict[str, Any]:
    """A row as the API shows it."""
    hidden = ("search", "is_final")
    return {name: value for name, value in row.items() if name not in hidden} | {
        "labels": json.loads(row["labels"])
    }
