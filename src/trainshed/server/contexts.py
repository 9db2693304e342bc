"""For whom a run is started: the one place where the server makes a Client.

Nothing of the server's own environment reaches a job: the search path is fixed,
framework environments lie in the home, secrets are those that the owner stored.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from trainshed.api import Client

_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Contexts:
    """Clients of one home."""

    home: Path
    environments: Path | None = None
    """Where framework environments lie, if not in the home."""

    def client(self, user: str, team: str) -> Client:
        environ = {"PATH": f"{Path(sys.executable).parent}:{_PATH}"}
        if self.environments is not None:
            environ["TRAINSHED_ENVS"] = str(self.environments)
        return Client(self.home, user=user, team=team, environ=environ)

    def operator(self) -> Client:
        """The server itself: it watches and launches the runs of all."""
        return self.client("server", "server")
