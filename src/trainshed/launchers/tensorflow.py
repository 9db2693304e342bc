"""Launcher `tensorflow`: TF_CONFIG, as MultiWorkerMirroredStrategy and its kin read it.

An entry's workers are its ranks. Inside a command there is one worker a node,
which uses all the node's devices. A world of one worker needs no TF_CONFIG.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainshed.launchers.base import Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port
from trainshed.plan.view import View


class TensorFlow(Launcher):
    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        if view.job.command is None or len(world.nodes) == 1:
            return {}
        return _config([f"{n.address}:{n.port(Port.MASTER)}" for n in world.nodes], world.position(node))

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        world = view.world(node)
        if world.size == 1:
            return {}
        workers = [f"{n.address}:{n.port(Port.RANKS, i)}" for n in world.nodes for i in range(len(n.devices))]
        return _config(workers, world.rank(node, local))


def _config(workers: Sequence[str], index: int) -> dict[str, str]:
    config = {"cluster": {"worker": list(workers)}, "task": {"type": "worker", "index": index}}
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


LAUNCHER = TensorFlow()
