"""What a launcher may say. It knows frameworks; it knows no platform and no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainshed.plan.model import Env
from trainshed.plan.topology import Node
from trainshed.plan.view import View


@dataclass(frozen=True, slots=True)
class Helper:
    """A process beside the ranks that serves them and is stopped when they are done.

    It runs a program of ours in its own folder, never the user's.
    """

    name: str
    env: Env
    argv: tuple[str, ...]


class Launcher:
    """How the processes of a framework find each other. A member overrides what it needs.

    An entry is started once per device, with `node_env` and `rank_env`; a
    command once per node (on the first node only if `command_on_first`), with
    `node_env`, so that the framework's own launcher works inside it.
    """

    command_on_first = False
    site: tuple[str, ...] = ()
    """Folders below payload whose modules the processes can import."""
    start: tuple[str, ...] = ()
    """Modules that are installed at the start of every Python, before the program's first line."""
    options: Mapping[str, str] = {}
    """The switches a job may set for this launcher, each with what it may be."""

    def needs_ssh(self, view: View) -> bool:
        """Whether the framework reaches the other nodes by SSH."""
        return False

    def common_env(self, view: View) -> Env:
        """Variables that are the same for all processes of the job."""
        return {}

    def node_env(self, view: View, node: Node) -> Env:
        """Variables for every process of the node."""
        return {}

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        """Variables for one rank."""
        return {}

    def helpers(self, view: View, node: Node) -> Sequence[Helper]:
        """Further processes on the node, beside the ranks of an entry."""
        return ()

    def serves(self, view: View, node: Node, local: int | None) -> bool:
        """Whether that rank, or that node's command, only serves others: it is stopped when those are done."""
        return False

    def tools(self, view: View) -> Mapping[str, str]:
        """Programs put before the system's of the same name, for a command: name → script."""
        return {}

    def notes(self, view: View) -> tuple[str, ...]:
        """Notes for the user before the job starts."""
        return ()
