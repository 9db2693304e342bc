"""Rank tables of a run, for contracts that promise one.

Devices that are emulated have no network address, so they get one of
240.0.0.0/4, which is reserved and belongs to no machine anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address

from trainshed.plan.topology import Node, World
from trainshed.plan.view import View
from trainshed.ranktables import RankTable, TableDevice, TableServer

_MADE_UP = int(IPv4Address("240.0.0.1"))
NOTE = "EMULATED: device addresses in rank tables are made up (240.0.0.0/4)"


def table(view: View, world: World, pod: Callable[[Node], str] | None = None) -> RankTable:
    """The devices of a world, with their ranks in it."""
    return RankTable.build(
        [
            TableServer(
                node.address,
                [
                    TableDevice(device.index, address(view, node, local), world.rank(node, local))
                    for local, device in enumerate(node.devices)
                ],
                pod(node) if pod else None,
            )
            for node in world.nodes
        ]
    )


def address(view: View, node: Node, local: int) -> str | None:
    """A device's own network address; None where it has none."""
    known = node.devices[local].address
    if known is None and view.site.emulate:
        return str(IPv4Address(_MADE_UP + node.first_rank + local))
    return known
