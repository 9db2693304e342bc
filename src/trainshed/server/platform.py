"""The platform: everything that the server's doors share, opened from a home and a database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainshed import files
from trainshed.errors import TrainshedError
from trainshed.server.accounts.keyring import Keyring
from trainshed.server.accounts.people import People
from trainshed.server.accounts.vault import Vault
from trainshed.server.contexts import Contexts
from trainshed.server.database import Database
from trainshed.server.index import RunIndex
from trainshed.server.jobs import Jobs
from trainshed.server.loop import Loop
from trainshed.server.uploads import CodeUploads

FOLDER = "server"


@dataclass(frozen=True)
class Platform:
    """One server's parts. Opening it starts nothing."""

    folder: Path
    database: Database
    people: People
    keyring: Keyring
    contexts: Contexts
    index: RunIndex
    jobs: Jobs
    loop: Loop
    uploads: CodeUploads

    @classmethod
    def open(cls, home: Path, url: str | None = None, environments: Path | None = None) -> Platform:
        """The platform of a home; its folder, key and tables are made at first."""
        folder = home / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = Database(url or f"sqlite:///{folder / 'server.db'}")
        database.migrate()
        keyring = Keyring(database, Vault.at(folder / "key"))
        people, index = People(database), RunIndex(database)
        contexts = Contexts(home, environments)
        uploads = CodeUploads(folder / "uploads")
        loop = Loop(contexts.operator(), index, people, keyring)
        jobs = Jobs(database, contexts, index, keyring, uploads, loop)
        return cls(folder, database, people, keyring, contexts, index, jobs, loop, uploads)

    def lock(self) -> int:
        """Held by the one server of a home, for as long as it lives."""
        handle = files.hold(self.folder / "serve.lock")
        if handle is None:
            raise TrainshedError(
                f"a server works on {self.folder.parent} already",
                f"stop it first, or see which: fuser {self.folder / 'serve.lock'}",
                code="busy",
            )
        return handle

    def rebuild(self) -> int:
        """Make the index again from the run directories; the number of runs."""
        self.index.clear()
        self.loop.scan()
        return len(self.index.ids())

    def close(self) -> None:
        self.loop.stop()
        self.database.close()
