"""Launcher `pytorch`: the variables of torch.distributed's `env://`, without torchrun between.

Inside a command, `torchrun --nnodes=$PET_NNODES …` needs no argument at all:
torchrun reads PET_* itself.
"""

from __future__ import annotations

from trainshed.launchers.base import Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port
from trainshed.plan.view import View


class PyTorch(Launcher):
    start = ("trainshed_leave",)

    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        master = world.master
        return {
            "MASTER_ADDR": master.address,
            "MASTER_PORT": str(master.port(Port.MASTER)),
            "GROUP_RANK": str(world.position(node)),
            "GROUP_WORLD_SIZE": str(len(world.nodes)),
            "NODE_RANK": str(world.position(node)),  # Lightning's name for it
            "LOCAL_WORLD_SIZE": str(len(node.devices)),
            "PET_NNODES": str(len(world.nodes)),
            "PET_NODE_RANK": str(world.position(node)),
            "PET_NPROC_PER_NODE": str(max(1, len(node.devices))),
            "PET_MASTER_ADDR": master.address,
            "PET_MASTER_PORT": str(master.port(Port.MASTER)),
            "PET_LOCAL_ADDR": node.address,
        }

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        world = view.world(node)
        rank, size = str(world.rank(node, local)), str(world.size)
        return {
            "RANK": rank,
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": size,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": size,
        }


LAUNCHER = PyTorch()
