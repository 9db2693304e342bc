"""What a contract may say. It knows a platform's promises; it knows no framework and no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainshed.errors import UsageError
from trainshed.plan.model import Env, FilePlan
from trainshed.plan.topology import Node
from trainshed.plan.view import Layout, View


class Contract:
    """What a script finds on its platform. A member overrides what it needs.

    Paths are written as the platform has them; `view.site.path(node, path)`
    says where such a path is on a node that cannot have it there.
    """

    site: tuple[str, ...] = ()
    """Folders below payload whose modules the script can import."""
    options: Mapping[str, str] = {}
    """The switches a job may set for this contract, each with what it may be."""

    promises_ssh = False
    """Whether the nodes of a job reach one another by SSH on this platform."""

    def check(self, view: View) -> None:
        """Refuse, with the reason, a job that this platform would not take."""

    def layout(self, view: View) -> Layout:
        """Where home, code, inputs and outputs lie."""
        raise NotImplementedError

    def names(self, view: View, node: Node) -> Sequence[str]:
        """Further host names that must resolve to the node."""
        return ()

    def common_env(self, view: View) -> Env:
        """Variables that are the same on all nodes."""
        return {}

    def node_env(self, view: View, node: Node) -> Env:
        """Variables of one node."""
        return {}

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        """Variables of one rank."""
        return {}

    def arguments(self, view: View, node: Node) -> Sequence[str]:
        """What follows the entry on its command line."""
        return channel_arguments(self.layout(view), view, node) + parameter_arguments(view)

    def command_arguments(self, view: View, node: Node) -> Sequence[str]:
        """What follows a command. Channels are passed only along with parameters: a command may take none."""
        return self.arguments(view, node) if view.job.parameters else ()

    def rank_dir(self, view: View, node: Node, local: int) -> str:
        """The working directory of one rank."""
        return self.layout(view).work

    def common_files(self, view: View) -> Sequence[FilePlan]:
        """Files that are the same on all nodes."""
        return ()

    def node_files(self, view: View, node: Node) -> Sequence[FilePlan]:
        """Files of one node."""
        return ()

    def hooks(self, view: View) -> Sequence[str]:
        """Scripts that are sourced before the ranks start, if they are beside the boot file."""
        return ()

    def hook_dir(self, view: View) -> str:
        """Where such scripts run."""
        return self.layout(view).code

    def requirements(self, view: View) -> Sequence[str]:
        """Files in the code folder that list packages to be installed first, if they exist."""
        return ()

    def notes(self, view: View) -> Sequence[str]:
        """Notes for the user before the job starts."""
        return ()

    def log_name(self, view: View, node: Node) -> str:
        """The name under which the node's log is left at the job's log_url."""
        return f"{view.run}-node-{node.index}.log"


def parameter_arguments(view: View) -> list[str]:
    """`--name=value` for each parameter; a flag for `true` alone is not guessed."""
    result = []
    for name, value in view.job.parameters.items():
        if value is None:
            result.append(f"--{name}")
            continue
        for item in value if isinstance(value, list) else [value]:
            result.append(f"--{name}={item}")
    return result


def channel_arguments(layout: Layout, view: View, node: Node) -> list[str]:
    """`--name=folder` for each channel that is fetched to the node and passed as an argument."""
    folders = {**layout.inputs, **layout.outputs}
    return [
        f"--{channel.name}={view.site.path(node, folders[channel.name])}"
        for channel in (*view.job.inputs, *view.job.outputs)
        if channel.name in folders and channel.access in ("argument", "both")
    ]


def choice(view: View, name: str, allowed: Sequence[str]) -> str:
    """The job's setting of a switch, the first of those allowed if it has none."""
    value = str(view.job.options.get(name, allowed[0]))
    if value not in allowed:
        raise UsageError(f"options.{name} is {value!r}", f"use one of {', '.join(allowed)}")
    return value
