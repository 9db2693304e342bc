"""How the agent reaches its node: from inside, or from outside a container that is the node.

Outside, a path of the node is found below the folder that is mounted into the
container, and a process enters the container through its own command.
Inside a sandbox each process is confined further: see `trainshed.agent.sandbox`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainshed.agent import sandbox
from trainshed.agent.handover import Handover
from trainshed.plan.model import NodePlan


class NodeAccess:
    """Paths and command lines of the node, as its agent uses them.

    `reports` is the one folder of the run that the node's processes write.
    """

    def __init__(self, node: NodePlan, handover: Handover, image: str | None, reports: str = "") -> None:
        # The longest first: a folder within a folder is found before what holds it.
        self._private = sorted(node.private, key=lambda pair: len(pair[0]), reverse=True)
        # All nodes may be given the same handover: a node puts its own number in.
        number = str(node.index)
        self._root = handover.root.replace("{node}", number)
        self._prefix = tuple(argument.replace("{node}", number) for argument in handover.prefix)
        self._hidden = tuple(path.replace("{node}", number) for path in handover.hidden)
        self._image = image
        self._reports = reports

    @property
    def is_outside(self) -> bool:
        """Whether the node's programs are not the agent's: they are in an image."""
        return bool(self._prefix)

    def real(self, path: str) -> str:
        """Where a path of the node lies for the agent."""
        if not self._root:
            return path
        for seen, folder in self._private:
            if path == seen or path.startswith(f"{seen}/"):
                return f"{self._root}/{folder}{path[len(seen) :]}"
        return path

    def enter(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], *, is_sshd: bool = False
    ) -> list[str]:
        """The command line that runs `argv` on the node.

        Only names of variables are put on it: their values, secrets among them, are inherited.
        """
        if self._hidden:
            return sandbox.confine(argv, self._hidden, [self._reports], is_sshd=is_sshd)
        if not self._prefix:
            return list(argv)
        names = [argument for name in sorted(env) for argument in ("-e", name)]
        return [*self._prefix, "-w", cwd, *names, self._image or "", *argv]
