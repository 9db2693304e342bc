"""Launcher `mindspore`: a dynamic cluster, in which a scheduler introduces the workers.

The scheduler is a process of its own on the world's first node and runs the
same script, so it gets a device as well: scripts read DEVICE_ID before they
call `init()`. A world of one rank needs no cluster and gets none.
"""

from __future__ import annotations

from trainshed.launchers.base import Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port
from trainshed.plan.view import View


class MindSpore(Launcher):
    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        if world.size == 1:
            return {}
        return {
            "MS_SCHED_HOST": world.master.address,
            "MS_SCHED_PORT": str(world.master.port(Port.MASTER)),
            "MS_WORKER_NUM": str(world.size),
            "MS_WORKER_IP": node.address,
        }

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        world = view.world(node)
        rank = str(world.rank(node, local))
        env = _identity(rank, node.devices[local].index, world.size)
        return env | {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank} if world.size > 1 else env

    def helper_env(self, view: View, node: Node) -> dict[str, Env]:
        world = view.world(node)
        if world.size == 1 or node.index != world.master.index:
            return {}
        return {"scheduler": _identity("0", node.devices[0].index, world.size) | {"MS_ROLE": "MS_SCHED"}}


def _identity(rank: str, device: int, size: int) -> dict[str, str]:
    return {"RANK_ID": rank, "RANK_SIZE": str(size), "DEVICE_ID": str(device)}


LAUNCHER = MindSpore()
