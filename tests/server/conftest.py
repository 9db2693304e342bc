"""Databases for the tests of the server: SQLite in a file, and a real PostgreSQL of the tests' own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server_accounts import add_people
from server_api import Served, add_people_by_api
from trainshed.server.accounts.keyring import Keyring
from trainshed.server.accounts.people import People
from trainshed.server.accounts.vault import Vault
from trainshed.server.database import Database


def _postgres(name: str) -> str:
    found = shutil.which(name) or max(
        map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None
    )
    if found is None:
        pytest.skip("apt-get install postgresql")
    return found


def _as_ordinary_user(folder: Path) -> dict[str, int]:
    """PostgreSQL refuses to run as root: then it runs as its own user, or as nobody."""
    if os.getuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid}


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL cluster that listens on a UNIX socket only; one per test process."""
    initdb, pg_ctl = _postgres("initdb"), _postgres("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="trainshed-pg-"))
    who = _as_ordinary_user(folder)
    more = {"check": True, "capture_output": True, "cwd": "/", "timeout": 120, **who}
    try:
        subprocess.run(
            [
                initdb,
                "-D",
                folder / "data",
                "-U",
                "trainshed",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ],
            **more,
        )
        options = (
            f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=16MB"
        )
        subprocess.run(
            [pg_ctl, "-D", folder / "data", "-l", folder / "log", "-o", options, "-w", "-t", "60", "start"],
            **more | {"capture_output": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
        )
        try:
            yield f"postgresql://trainshed@/postgres?host={folder}"
        finally:
            subprocess.run([pg_ctl, "-D", folder / "data", "-m", "immediate", "-w", "stop"], **more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the test's own: SQLite, or what the test is parametrised with."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path / 'server.db'}"
    import psycopg

    cluster: str = request.getfixturevalue("postgresql")
    name = f"t{os.urandom(6).hex()}"
    with psycopg.connect(cluster, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return cluster.replace("/postgres?", f"/{name}?")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def people(database: Database) -> People:
    found = People(database)
    add_people(found)
    return found


@pytest.fixture
def keyring(people: People, tmp_path: Path) -> Keyring:
    return Keyring(people.database, Vault.at(tmp_path / "key"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A running server with people in two teams, shared by the tests of a file."""
    found = Served(tmp_path_factory.mktemp("server") / "home").start()
    try:
        add_people_by_api(found.api())
        yield found
    finally:
        found.stop()
