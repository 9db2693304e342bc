"""Launcher `paddle`: the PADDLE_* variables of a collective job, without Paddle's launcher between.

Inside a command, `python -m paddle.distributed.launch train.py` needs no
argument about nodes: it reads POD_IP, PADDLE_MASTER, PADDLE_NNODES,
PADDLE_RANK and PADDLE_NPROC_PER_NODE, and lets them win over arguments.
"""

from __future__ import annotations

from trainshed.launchers.base import Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port, World
from trainshed.plan.view import View
from trainshed.spec.kinds import DeviceKind, Mode


class Paddle(Launcher):
    site = ("paddle_launch",)
    start = ("trainshed_leave", "trainshed_paddle_launch")

    def common_env(self, view: View) -> Env:
        # The list is long and the same for all, so it is held once wherever there is one world.
        if view.job.mode is Mode.SINGLE_SERVER:
            return {}
        return _list(view.world(view.topology.nodes[0]))

    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        master = world.master
        env = {
            "POD_IP": node.address,
            "PADDLE_MASTER": f"{master.address}:{master.port(Port.MASTER)}",
            "PADDLE_NNODES": str(len(world.nodes)),
            "PADDLE_RANK": str(world.position(node)),
            "PADDLE_NPROC_PER_NODE": str(max(1, len(node.devices))),
            "PADDLE_JOB_ID": view.run,
            "TRAINING_ROLE": "TRAINER",
        }
        if view.topology.kind is DeviceKind.CPU or view.site.emulate:
            env["PADDLE_DISTRI_BACKEND"] = "gloo"
        return env | _list(world) if view.job.mode is Mode.SINGLE_SERVER else env

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        world = view.world(node)
        rank, local_rank = str(world.rank(node, local)), str(local)
        env = {
            "PADDLE_TRAINER_ID": rank,
            "PADDLE_CURRENT_ENDPOINT": _endpoint(node, local),
            "PADDLE_GLOBAL_RANK": rank,
            "PADDLE_GLOBAL_SIZE": str(world.size),
            "PADDLE_LOCAL_RANK": local_rank,
            "PADDLE_LOCAL_SIZE": str(len(node.devices)),
            "PADDLE_RANK_IN_NODE": local_rank,
        }
        if view.topology.kind is DeviceKind.NVIDIA:
            env["FLAGS_selected_gpus"] = local_rank
        return env


def _list(world: World) -> dict[str, str]:
    ends = [_endpoint(node, local) for node in world.nodes for local in range(len(node.devices))]
    return {"PADDLE_TRAINERS_NUM": str(world.size), "PADDLE_TRAINER_ENDPOINTS": ",".join(ends)}


def _endpoint(node: Node, local: int) -> str:
    return f"{node.address}:{node.port(Port.RANKS, local)}"


LAUNCHER = Paddle()
