"""What a launcher may say. It knows frameworks; it knows no platform and no engine."""

from __future__ import annotations

from trainshed.plan.model import Env
from trainshed.plan.topology import Node
from trainshed.plan.view import View


class Launcher:
    """How the processes of a framework find each other. A member overrides what it needs.

    An entry is started once per device, with `node_env` and `rank_env`; a
    command once per node (on the first node only if `command_on_first`), with
    `node_env`, so that the framework's own launcher works inside it.
    """

    command_on_first = False

    def node_env(self, view: View, node: Node) -> Env:
        """Variables for every process of the node."""
        return {}

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        """Variables for one rank."""
        return {}

    def helper_env(self, view: View, node: Node) -> dict[str, Env]:
        """Further processes on the node that run the entry as well: name → variables."""
        return {}

    def notes(self, view: View) -> tuple[str, ...]:
        """What the user should be told before the job starts."""
        return ()
