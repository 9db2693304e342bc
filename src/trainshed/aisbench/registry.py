"""Jobs by name with their versions, as ModelArts numbers them: which run is the newest of exactly this name.

A version is entered before its job is submitted, and the run carries its number
as a label, so that it is found again even if this process is killed in between.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainshed.api import Client, Run
from trainshed.errors import NotFoundError

LABEL = "trainshed/ais-bench-version"
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS versions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER REFERENCES jobs(id), number INTEGER, api TEXT,
  resource TEXT, out TEXT, package TEXT, run TEXT, begun REAL, UNIQUE (job, number));
"""
_COLUMNS = "v.id, v.job, j.name, v.number, v.api, v.resource, v.out, v.package, v.run"


@dataclass(frozen=True)
class Version:
    """One submission of a job."""

    id: int
    job_id: int
    job_name: str
    number: int
    api: str
    resource: str
    """`job<8 hex>` with V1, a UUID with V2: the platform's own name of the job."""
    out: str
    package: str
    run: str

    @property
    def label(self) -> str:
        return f"{self.job_name}-V{self.number}"

    def find_run(self, client: Client) -> Run | None:
        """The run of this version, if it was ever submitted and is still here."""
        if self.run:
            try:
                return client.get(self.run)
            except NotFoundError:
                return None
        return next(iter(client.runs({LABEL: str(self.id)})), None)


class Registry:
    """The versions that are known in one home."""

    def __init__(self, home: Path) -> None:
        self.path = home / "aisbench.sqlite"

    def next_number(self, name: str) -> int:
        with self._open() as db:
            row = db.execute(
                "SELECT max(number) FROM versions v JOIN jobs j ON v.job = j.id WHERE j.name = ?", (name,)
            ).fetchone()
        return (row[0] or 0) + 1

    def begin(self, name: str, number: int, api: str, out: str, package: Path) -> Version:
        """Enter a version; its run is not known yet."""
        resource = f"job{secrets.token_hex(4)}" if api == "V1" else str(uuid.uuid4())
        with self._open() as db, db:
            db.execute("INSERT OR IGNORE INTO jobs (name) VALUES (?)", (name,))
            (job,) = db.execute("SELECT id FROM jobs WHERE name = ?", (name,)).fetchone()
            cursor = db.execute(
                "INSERT INTO versions (job, number, api, resource, out, package, run, begun)"
                " VALUES (?, ?, ?, ?, ?, ?, '', ?)",
                (job, number, api, resource, out, str(package.resolve()), time.time()),
            )
            identity = int(cursor.lastrowid or 0)
        return Version(identity, job, name, number, api, resource, out, str(package.resolve()), "")

    def started(self, version: Version, run: str) -> None:
        with self._open() as db, db:
            db.execute("UPDATE versions SET run = ? WHERE id = ?", (run, version.id))

    def newest(self, name: str) -> Version | None:
        """The newest version of exactly this name."""
        return self._one("j.name = ? ORDER BY v.number DESC", name)

    def newest_of_package(self, package: Path) -> Version | None:
        return self._one("v.package = ? ORDER BY v.id DESC", str(package.resolve()))

    def by_id(self, text: str) -> Version | None:
        """A version by its job's id on the platform."""
        return self._one("v.resource = ?1 OR (?1 GLOB '[0-9]*' AND j.id = ?1) ORDER BY v.id DESC", text)

    def get(self, identity: int) -> Version | None:
        return self._one("v.id = ?", identity)

    def _one(self, where: str, value: object) -> Version | None:
        with self._open() as db:
            row = db.execute(
                f"SELECT {_COLUMNS} FROM versions v JOIN jobs j ON v.job = j.id WHERE {where} LIMIT 1",  # noqa: S608
                (value,),
            ).fetchone()
        return Version(*row) if row else None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            db.executescript(_TABLES)
            yield db
