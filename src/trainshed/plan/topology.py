"""Topology: the nodes of a run with their names, addresses, devices, ports and ranks.

Pure data. An engine makes one (from virtual nodes, an allocation, pods) and
nothing later asks where it came from. Global rank = order of nodes, then of
devices on the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from trainshed.devices.base import Device as Device
from trainshed.spec.kinds import DeviceKind, Mode


class Port(IntEnum):
    """What each port of a node's own range is for, counted from its first port."""

    COORDINATOR = 0
    MASTER = 1
    RENDEZVOUS = 2
    SSH = 3
    SERVICE = 4
    MEETING = 5
    """Where the ranks of a world wait for one another at their end, on its first node."""
    RANKS = 8
    """One port for each device follows from here on."""


def ports_needed(devices: int) -> int:
    """The least number of ports a node with that many devices takes."""
    return Port.RANKS + max(devices, 1)


@dataclass(frozen=True, slots=True)
class Host:
    """What an engine knows of a machine before ranks are counted."""

    name: str
    address: str
    devices: tuple[Device, ...]
    first_port: int


@dataclass(frozen=True, slots=True)
class Node:
    """A host with its place in the run."""

    index: int
    name: str
    address: str
    devices: tuple[Device, ...]
    first_port: int
    first_rank: int

    def port(self, use: Port, offset: int = 0) -> int:
        return self.first_port + use + offset


@dataclass(frozen=True, slots=True)
class World:
    """Nodes that train one model together; ranks within it start at 0."""

    nodes: tuple[Node, ...]

    @property
    def master(self) -> Node:
        return self.nodes[0]

    @property
    def size(self) -> int:
        last = self.nodes[-1]
        return last.first_rank + len(last.devices) - self.master.first_rank

    def rank(self, node: Node, local: int) -> int:
        return node.first_rank + local - self.master.first_rank

    def position(self, node: Node) -> int:
        return node.index - self.master.index


@dataclass(frozen=True, slots=True)
class Topology:
    """All nodes of a run and the kind of their devices."""

    kind: DeviceKind
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, kind: DeviceKind, hosts: Iterable[Host]) -> Topology:
        """Number the hosts' devices through; the order of hosts is the order of ranks."""
        nodes, rank = [], 0
        for index, host in enumerate(hosts):
            nodes.append(Node(index, host.name, host.address, host.devices, host.first_port, rank))
            rank += len(host.devices)
        return cls(kind, tuple(nodes))

    @property
    def size(self) -> int:
        return self.nodes[-1].first_rank + len(self.nodes[-1].devices)

    def worlds(self, mode: Mode) -> Sequence[World]:
        """One world of all nodes, or one for each node; `worlds[i]` belongs to node i in the latter."""
        if mode is Mode.DISTRIBUTED:
            return (World(self.nodes),)
        return tuple(World((node,)) for node in self.nodes)
