"""Launcher `horovod`: ranks that meet over gloo at a rendezvous server on the world's first node.

A command runs on the first node only: `horovodrun` and `mpirun` start the
ranks themselves, over SSH, with /job/hostfile.
"""

from __future__ import annotations

from trainshed.launchers.base import Helper, Launcher
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, Port
from trainshed.plan.view import View


class Horovod(Launcher):
    command_on_first = True
    site = ("launch",)

    def needs_ssh(self, view: View) -> bool:
        return view.job.command is not None

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        world = view.world(node)
        if world.size == 1:
            return {}
        master = world.master
        return {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": master.address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(master.port(Port.RENDEZVOUS)),
            "HOROVOD_HOSTNAME": node.name,
            "HOROVOD_RANK": str(world.rank(node, local)),
            "HOROVOD_SIZE": str(world.size),
            "HOROVOD_LOCAL_RANK": str(local),
            "HOROVOD_LOCAL_SIZE": str(len(node.devices)),
            "HOROVOD_CROSS_RANK": str(world.position(node)),
            "HOROVOD_CROSS_SIZE": str(len(world.nodes)),
        }

    def helpers(self, view: View, node: Node) -> tuple[Helper, ...]:
        world = view.world(node)
        if world.size == 1 or node.index != world.master.index:
            return ()
        hosts = ",".join(f"{n.name}:{len(n.devices)}" for n in world.nodes)
        port = str(node.port(Port.RENDEZVOUS))
        argv = (view.site.python, "-m", "trainshed_rendezvous", node.address, port, hosts)
        return (Helper("rendezvous", {}, argv),)

    def tools(self, view: View) -> dict[str, str]:
        return {"horovodrun": '#!/bin/sh\nexec python -m trainshed_horovodrun "$@"\n'}


LAUNCHER = Horovod()
