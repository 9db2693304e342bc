"""What launchers and contracts may see while a plan is made: the job, the topology, the site.

They get this and return plain values; they never see one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from trainshed.plan.topology import Node, Topology, World
from trainshed.spec.kinds import Mode

if TYPE_CHECKING:
    from trainshed.spec.job import JobSpec


ProcessEnv = Callable[[World, Node, int | None], Mapping[str, str]]
"""An engine's variables for one process: of a rank by its number on the node, or of a node's command (None)."""


@dataclass(frozen=True)
class Site:
    """What an engine promises of its nodes.

    `isolated`: every node has its own file system view, so a contract's
    absolute paths (/cache, /home/work) exist just as written. Otherwise they
    are moved below the node's folder in `scratch`.
    """

    python: str
    search_path: str
    scratch: str
    library: str
    """The folder of modules given to scripts (moxing, …), as nodes see it."""
    isolated: bool = True
    cpus: int = 1
    user: str = "trainshed"
    team: str = "default"
    uid: int | None = None
    gid: int | None = None
    emulate: bool = False
    store: Mapping[str, str] = field(default_factory=dict)
    """Variables of the object store for a script: endpoint, never a key."""
    keys: tuple[str, ...] = ()
    """Names of the variables that hold the store's keys; their values never enter a plan."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the engine that are the same for all processes."""
    process_env: ProcessEnv | None = None
    homes: str = ""
    """The folder in which users' homes are kept, reachable from all nodes; empty where there is none."""

    def path(self, node: Node, path: str) -> str:
        """Where a contract's absolute path is found on that node."""
        return path if self.isolated else f"{self.scratch}/node-{node.index}{path}"

    def private_folder(self, node: Node, name: str) -> str:
        """A folder of that name on the node which is Trainshed's, not the script's."""
        return self.path(node, f"/tmp/.trainshed/{name}")  # noqa: S108 (a node's own)

    def tools(self, node: Node) -> str:
        """The node's folder of programs that come before the system's of the same name."""
        return self.private_folder(node, "bin")


@dataclass(frozen=True)
class View:
    """One job on one topology at one site."""

    run: str
    job: JobSpec
    topology: Topology
    site: Site

    @cached_property
    def _worlds(self) -> tuple[World, ...]:
        return tuple(self.topology.worlds(self.job.mode))

    def world(self, node: Node) -> World:
        return self._worlds[node.index if self.job.mode is Mode.SINGLE_SERVER else 0]


@dataclass(frozen=True)
class Layout:
    """Where things are on a node under a contract; paths as the contract writes them."""

    home: str
    code: str
    work: str
    inputs: Mapping[str, str]
    """Channel → folder. A channel that is not listed is not fetched to the node."""
    outputs: Mapping[str, str]
    private: tuple[str, ...] = ()
    """Further directories that belong to this node alone, besides home, /tmp and /cache."""
    image_home: bool = False
    """With an image, home is the image's own, and of it only folders in `private` are the node's."""
    folders: tuple[str, ...] = ()
    """Directories that exist, though nothing is put into them."""
    kept_home: bool = False
    """Home is the user's, shared by the nodes of all jobs and kept; of it folders in `private` are the node's."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Names in a kept home that link to the node's private files: link → path."""
