"""Launcher `tensorflow`: TF_CONFIG, as MultiWorkerMirroredStrategy and its kin read it.

An entry's workers are its ranks. Inside a command there is one worker a node,
which uses all the node's devices. A world of one worker needs no TF_CONFIG.
"""

from __future__ import annotations

import json

from trainshed.launchers.base import Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port
from trainshed.plan.view import View
from trainshed.spec.kinds import Mode

_WORKERS = "TRAINSHED_TF_WORKERS"


class TensorFlow(Launcher):
    def common_env(self, view: View) -> Env:
        """All workers of a distributed job, once; each TF_CONFIG quotes them."""
        workers = _workers(view, view.topology.nodes[0])
        if view.job.mode is not Mode.DISTRIBUTED or len(workers) == 1:
            return {}
        return {_WORKERS: _json(workers)}

    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        if view.job.command is None or len(world.nodes) == 1:
            return {}
        return _config(view, node, world.position(node))

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        world = view.world(node)
        return _config(view, node, world.rank(node, local)) if world.size > 1 else {}


def _workers(view: View, node: Node) -> list[str]:
    nodes = view.world(node).nodes
    if view.job.command is not None:
        return [f"{n.address}:{n.port(Port.MASTER)}" for n in nodes]
    return [f"{n.address}:{n.port(Port.RANKS, i)}" for n in nodes for i in range(len(n.devices))]


def _config(view: View, node: Node, index: int) -> dict[str, str]:
    shared = view.job.mode is Mode.DISTRIBUTED
    workers = f"$({_WORKERS})" if shared else _json(_workers(view, node))
    return {"TF_CONFIG": f'{{"cluster":{{"worker":{workers}}},"task":{{"type":"worker","index":{index}}}}}'}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


LAUNCHER = TensorFlow()
