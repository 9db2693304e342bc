"""A database by its URL: SQLite embedded, PostgreSQL for larger sites; the same code for both.

SQLite has one writer at a time: here a lock keeps this process's writers in
order, and `BEGIN IMMEDIATE` with a timeout those of other processes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from trainshed.errors import TrainshedError, UsageError

_PRAGMAS = ("journal_mode=WAL", "busy_timeout=5000", "synchronous=NORMAL", "foreign_keys=ON")
_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATING = 4711
"""The number of the lock that two processes which migrate one PostgreSQL database take in turn."""


class DatabaseError(TrainshedError):
    """The database cannot be reached, or refuses."""

    code = "database"


class Database:
    """Connections to one database. `read` and `write` are short: nothing slow happens inside."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._writing = threading.RLock()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view, for questions only."""
        with _told(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: all of it happens, or none."""
        turn = self._writing if self.is_sqlite else nullcontext()
        writer = self.engine.execution_options(writes=True)
        with _told(), turn, writer.connect() as connection, connection.begin():
            yield connection

    def migrate(self) -> None:
        """Bring the tables to this release's form; refuses a database of a later one."""
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        with self.write() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _MIGRATING})
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise DatabaseError(
                    f"the database was made by a later release of Trainshed: {error}",
                    "start that release, or give another --database",
                ) from error

    def check(self) -> None:
        """DatabaseError when it does not answer."""
        with self.read() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        self.engine.dispose()


@contextmanager
def _told() -> Iterator[None]:
    """What the database says, as our error; a broken constraint stays itself, for those who expect it."""
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        first = str(error.orig).strip().splitlines()[0]
        raise DatabaseError(f"database: {first}", "check that it runs and has room") from error


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UsageError(
            "--database is not a URL", "write sqlite:////path/to/file or postgresql://user@host/name"
        ) from error
    if parsed.password:
        raise UsageError(
            "--database holds a password, which every process of the machine can read",
            "put it into ~/.pgpass, or into the file that PGPASSFILE names",
        )
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, pool_size=8)
    if parsed.drivername != "sqlite" or not parsed.database:
        raise UsageError(
            f"--database: {parsed.drivername!r} is not served", "use sqlite:////path or postgresql://…"
        )
    engine = create_engine(parsed, connect_args={"check_same_thread": False, "timeout": 5})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(raw: Any, _record: Any) -> None:
    raw.isolation_level = None  # transactions begin where we say, see _begin_sqlite
    for pragma in _PRAGMAS:
        raw.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
