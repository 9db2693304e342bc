"""Launcher `mindspore`: a dynamic cluster, in which a scheduler introduces the workers.

The scheduler is its own process on the world's first node. It only joins
the cluster and runs nothing of the user's. A world of one rank has its cluster
too: scripts that call `init()` do not ask how many they are.

With `options: {cluster: ranktable}` there is no scheduler: ranks on Ascend meet
by the rank table that the contract gives. The CPU knows no other way than the
dynamic cluster, so emulated devices use that.

Inside a command, `msrun train.py` needs no argument: what is missing is filled
in from the job by a program that stands before msrun.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainshed.errors import UsageError
from trainshed.launchers.base import Helper, Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port
from trainshed.plan.view import View
from trainshed.spec.kinds import DeviceKind


class MindSpore(Launcher):
    site = ("launch",)
    start = ("trainshed_leave",)
    options: Mapping[str, str] = {
        "cluster": "dynamic (a scheduler, the default) or ranktable (Ascend, with the contract's rank table)"
    }

    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        # MindSpore logs every connection it makes; a job that wants that sets GLOG_v.
        quiet = {"GLOG_v": "3"}
        if not _dynamic(view):
            return quiet
        return quiet | {
            "MS_SCHED_HOST": world.master.address,
            "MS_SCHED_PORT": str(world.master.port(Port.MASTER)),
            "MS_WORKER_NUM": str(world.size),
            "MS_WORKER_IP": node.address,
        }

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        world = view.world(node)
        rank = str(world.rank(node, local))
        device = str(node.devices[local].index)
        env = {"RANK_ID": rank, "RANK_SIZE": str(world.size), "DEVICE_ID": device}
        if not _dynamic(view):
            return env
        return env | {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, "TRAINSHED_SCHEDULER": "1"}

    def helpers(self, view: View, node: Node) -> tuple[Helper, ...]:
        world = view.world(node)
        if not _dynamic(view) or node.index != world.master.index:
            return ()
        argv = (view.site.python, "-m", "trainshed_scheduler")
        return (Helper("scheduler", {"MS_ROLE": "MS_SCHED"}, argv),)

    def tools(self, view: View) -> dict[str, str]:
        return {"msrun": '#!/bin/sh\nexec python -m trainshed_msrun "$@"\n'}


def _dynamic(view: View) -> bool:
    cluster = view.job.options.get("cluster", "dynamic")
    if cluster not in ("dynamic", "ranktable"):
        raise UsageError(f"options.cluster is {cluster!r}", "use dynamic or ranktable")
    if cluster == "ranktable" and view.topology.kind is not DeviceKind.ASCEND:
        raise UsageError(
            f"options.cluster is ranktable, but the devices are {view.topology.kind.value}",
            "use dynamic: only Ascend has rank tables",
        )
    return cluster == "dynamic" or view.site.emulate


LAUNCHER = MindSpore()
