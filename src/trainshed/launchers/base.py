"""What a launcher may say. It knows frameworks; it knows no platform and no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainshed.plan.model import Env
from trainshed.plan.topology import Node
from trainshed.plan.view import View


@dataclass(frozen=True, slots=True)
class Helper:
    """A process beside the ranks. One that runs the entry too is waited for, as a rank is.

    One with a program of its own (`argv`) serves the ranks and is stopped when they are done.
    """

    name: str
    env: Env
    argv: tuple[str, ...] = ()


class Launcher:
    """How the processes of a framework find each other. A member overrides what it needs.

    An entry is started once per device, with `node_env` and `rank_env`; a
    command once per node (on the first node only if `command_on_first`), with
    `node_env`, so that the framework's own launcher works inside it.
    """

    command_on_first = False
    site: tuple[str, ...] = ()
    """Folders below contracts/site whose modules the processes can import."""
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

    def tools(self, view: View) -> Mapping[str, str]:
        """Programs put before the system's of the same name, for a command: name → script."""
        return {}

    def notes(self, view: View) -> tuple[str, ...]:
        """What the user should be told before the job starts."""
        return ()
