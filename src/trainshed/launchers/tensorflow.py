"""Launcher `tensorflow`: TF_CONFIG, as MultiWorkerMirroredStrategy, ParameterServerStrategy and their kin read it.

An entry's tasks are its ranks. Inside a command there is one task per node,
which uses all the node's devices. A world of one has its TF_CONFIG too: scripts
read it without asking how many they are.

With `options: {ps: 2}` the last two tasks are parameter servers, the first is
the chief and the others are workers. Servers and workers of such a cluster wait
for the chief's orders and never end by themselves: the chief's end is the job's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainshed.errors import UsageError
from trainshed.launchers.base import Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port, World
from trainshed.plan.view import View
from trainshed.spec.kinds import Mode

_CLUSTER = "TRAINSHED_TF_CLUSTER"


class TensorFlow(Launcher):
    options: Mapping[str, str] = {
        "ps": "number of parameter servers; the first task is then the chief, the last ones are the servers"
    }

    def common_env(self, view: View) -> Env:
        """All tasks of a distributed job, once; each TF_CONFIG quotes them."""
        if view.job.mode is not Mode.DISTRIBUTED:
            return {}
        return {_CLUSTER: _json(_cluster(view, view.world(view.topology.nodes[0])))}

    def node_env(self, view: View, node: Node) -> Env:
        if view.job.command is None:
            return {}
        return _config(view, node, view.world(node).position(node))

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        return _config(view, node, view.world(node).rank(node, local))

    def serves(self, view: View, node: Node, local: int | None) -> bool:
        world = view.world(node)
        task = world.position(node) if local is None else world.rank(node, local)
        return _servers(view, world) > 0 and task > 0


def _tasks(view: View, world: World) -> list[str]:
    """The address of each task, in their order."""
    if view.job.command is not None:
        return [f"{n.address}:{n.port(Port.MASTER)}" for n in world.nodes]
    return [f"{n.address}:{n.port(Port.RANKS, i)}" for n in world.nodes for i in range(len(n.devices))]


def _servers(view: View, world: World) -> int:
    count = view.job.options.get("ps", 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UsageError(f"options.ps is {count!r}", "give the number of parameter servers, e.g. 1")
    tasks = _count(view, world)
    if count and tasks < count + 2:
        raise UsageError(
            f"options.ps is {count}, but there are {tasks} tasks in all",
            f"ask for {count + 2} or more: a chief, {count} parameter servers and at least one worker",
        )
    return count


def _cluster(view: View, world: World) -> dict[str, list[str]]:
    tasks, servers = _tasks(view, world), _servers(view, world)
    if not servers:
        return {"worker": tasks}
    return {"chief": tasks[:1], "worker": tasks[1:-servers], "ps": tasks[-servers:]}


def _config(view: View, node: Node, task: int) -> dict[str, str]:
    world = view.world(node)
    kind, index = _task_address(view, world, task)
    shared = view.job.mode is Mode.DISTRIBUTED
    cluster = f"$({_CLUSTER})" if shared else _json(_cluster(view, world))
    return {"TF_CONFIG": f'{{"cluster":{cluster},"task":{{"type":"{kind}","index":{index}}}}}'}


def _task_address(view: View, world: World, task: int) -> tuple[str, int]:
    servers = _servers(view, world)
    if not servers:
        return "worker", task
    first = _count(view, world) - servers
    if task >= first:
        return "ps", task - first
    return ("worker", task - 1) if task else ("chief", 0)


def _count(view: View, world: World) -> int:
    return world.size if view.job.command is None else len(world.nodes)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


LAUNCHER = TensorFlow()
