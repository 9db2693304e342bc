"""The database: both kinds of it take the same tables, one writer at a time, and tell what is wrong."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import IntegrityError

from trainshed.errors import UsageError
from trainshed.server.database import Database, DatabaseError
from trainshed.server.database.schema import memberships, metadata, teams, users

pytestmark = [pytest.mark.server]
BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


def add_user(database: Database, name: str) -> None:
    with database.write() as connection:
        row = {"name": name, "password": "", "is_admin": False, "is_active": True, "created": time.time()}
        connection.execute(insert(users).values(row))


@BOTH
def test_the_migrations_make_the_tables_that_the_code_uses(database: Database) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": lambda name, *_: "_search" not in (name or "")}
        )
        assert compare_metadata(context, metadata) == []


@BOTH
def test_migrating_again_changes_nothing(database: Database) -> None:
    add_user(database, "ann")
    database.migrate()
    with database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(users)) == 1


@BOTH
def test_two_processes_may_migrate_at_once(database_url: str) -> None:
    problems: list[Exception] = []

    def migrate() -> None:
        database = Database(database_url)
        try:
            database.migrate()
        except Exception as error:
            problems.append(error)
        finally:
            database.close()

    threads = [threading.Thread(target=migrate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


@BOTH
def test_a_database_of_a_later_release_is_refused(database: Database) -> None:
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="later release"):
        database.migrate()


@BOTH
def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    with pytest.raises(IntegrityError), database.write() as connection:
        row = {"name": "ann", "password": "", "is_admin": False, "is_active": True, "created": 1.0}
        connection.execute(insert(users).values(row))
        connection.execute(insert(users).values(row))
    with database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(users)) == 0


@BOTH
def test_references_are_checked(database: Database) -> None:
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.execute(insert(memberships).values(user_id=7, team_id=8, role="member"))


@BOTH
def test_writers_of_many_threads_and_two_connections_all_get_through(
    database: Database, database_url: str
) -> None:
    other = Database(database_url)

    def count(which: Database, index: int) -> None:
        for number in range(10):
            with which.write() as connection:
                connection.execute(insert(teams).values(name=f"{index}-{number}", created=1.0))

    threads = [threading.Thread(target=count, args=((database, other)[i % 2], i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(teams)) == 60
    other.close()


def test_sqlite_is_set_up_for_a_server(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'server.db'}")
    with database.read() as connection:
        found = [
            connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    database.close()
    assert found == ["wal", 1, 1, 5000]


def test_a_database_out_of_reach_is_told(tmp_path: Path) -> None:
    database = Database(f"postgresql://ann@/nowhere?host={tmp_path}")
    with pytest.raises(DatabaseError, match="check that it runs"):
        database.check()


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/name", "sqlite://"])
def test_what_is_no_database_of_ours_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Database(url)


def test_a_password_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="pgpass") as refused:
        Database("postgresql://ann:hunter22@localhost/trainshed")
    assert "hunter22" not in str(refused.value)
