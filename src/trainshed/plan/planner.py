"""plan(): spec + topology + site → Plan. Pure: it reads no file, no clock and no environment.

Nothing past this point decides what a rank sees. Launcher and contract are
loaded by name and asked one after the other; where both set a variable the
contract wins, since it is what the script was written for, and the job's own
`env` wins over both.
"""

from __future__ import annotations

import shlex

from trainshed import axes
from trainshed.errors import UsageError
from trainshed.plan.devices import visible_env
from trainshed.plan.model import NodePlan, Plan, ProcessPlan, Transfer
from trainshed.plan.topology import Node, Port, Topology
from trainshed.plan.view import Layout, Site, View
from trainshed.spec.job import Channel, JobSpec

_RESERVED = "TRAINSHED_"


def plan(job: JobSpec, topology: Topology, site: Site, run: str) -> Plan:
    """What will happen, for every node, or a UsageError that says why it cannot."""
    reserved = sorted(name for name in (*job.env, *job.secrets) if name.startswith(_RESERVED))
    if reserved:
        raise UsageError(
            f"env: {', '.join(reserved)} is Trainshed's own", "choose a name that does not begin so"
        )
    view = View(run, job, topology, site)
    return _Planner(view).whole()


class _Planner:
    """Holds what is asked once and needed for every node."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.launcher = axes.load("launcher", view.job.launcher)
        self.contract = axes.load("contract", view.job.contract)
        self.layout: Layout = self.contract.layout(view)
        own = (self.layout.home, "/tmp", "/cache", *self.layout.private)  # noqa: S108 (a node's own)
        self.private = tuple(sorted({path.rstrip("/") for path in own}))

    def whole(self) -> Plan:
        view, job, topology = self.view, self.view.job, self.view.topology
        first = topology.nodes[0]
        coordinator = (first.address, first.port(Port.COORDINATOR))
        return Plan(
            run=view.run,
            launcher=job.launcher,
            contract=job.contract,
            kind=topology.kind.value,
            emulated=view.site.emulate,
            isolated=view.site.isolated,
            size=topology.size,
            image=job.image,
            env=self._common_env(),
            files=tuple(self.contract.common_files(view)),
            hosts=tuple((n.address, (n.name, *self.contract.names(view, n))) for n in topology.nodes),
            secrets=tuple(sorted(job.secrets)),
            grace=job.grace,
            timeout=job.timeout,
            memory=job.resources.memory,
            notes=tuple(self.launcher.notes(view)),
            nodes=tuple(self._node(node, coordinator) for node in topology.nodes),
        )

    def _common_env(self) -> dict[str, str]:
        view = self.view
        env = {
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "TRAINSHED_RUN_ID": view.run,
            "TRAINSHED_NODES": str(len(view.topology.nodes)),
            "TRAINSHED_DEVICE_KIND": view.topology.kind.value,
        }
        if view.site.emulate:
            env["TRAINSHED_EMULATED"] = "1"
        return env | dict(view.site.store) | dict(self.contract.common_env(view))

    def _node(self, node: Node, coordinator: tuple[str, int]) -> NodePlan:
        view, job, layout, site = self.view, self.view.job, self.layout, self.view.site
        folders = {**layout.inputs, **layout.outputs}
        placed = {name: site.path(node, folder) for name, folder in folders.items()}
        code = site.path(node, layout.code)
        return NodePlan(
            index=node.index,
            name=node.name,
            address=node.address,
            coordinator=coordinator,
            work_dir=site.path(node, layout.work),
            private=tuple((site.path(node, path), path.lstrip("/")) for path in self.private),
            env=self._node_env(node, placed),
            files=tuple(self.contract.node_files(view, node)),
            code=Transfer("code", job.code, code) if job.code else None,
            inputs=tuple(Transfer(c.name, c.source or "", placed[c.name]) for c in job.inputs),
            outputs=tuple(_upload(c, placed[c.name]) for c in job.outputs),
            pre_start=(f"{code}/{job.pre_start}",) if job.pre_start else (),
            processes=tuple(self._processes(node, code)),
        )

    def _node_env(self, node: Node, placed: dict[str, str]) -> dict[str, str]:
        view, site = self.view, self.view.site
        python_bin = site.python.rpartition("/")[0]
        env = {
            "HOME": site.path(node, self.layout.home),
            "TMPDIR": site.path(node, "/tmp"),  # noqa: S108 (a node's own)
            "HOSTNAME": node.name,
            "PATH": f"{python_bin}:{site.search_path}" if python_bin else site.search_path,
            "PYTHONPATH": site.library,
            "TRAINSHED_NODE": str(node.index),
            "TRAINSHED_NODE_ADDRESS": node.address,
            "TRAINSHED_LOCAL_SIZE": str(len(node.devices)),
            "TRAINSHED_WORLD_SIZE": str(view.world(node).size),
        }
        env |= {
            f"TRAINSHED_CHANNEL_{name.upper().replace('-', '_')}": folder for name, folder in placed.items()
        }
        if view.job.outputs:
            env["TRAINSHED_OUTPUT_DIR"] = placed[view.job.outputs[0].name]
        env |= visible_env(view.topology.kind, node, site.cpus, site.emulate)
        env |= self.launcher.node_env(view, node)
        env |= self.contract.node_env(view, node)
        return env | view.job.env

    def _processes(self, node: Node, code: str) -> list[ProcessPlan]:
        view, job = self.view, self.view.job
        if job.command is not None:
            if self.launcher.command_on_first and node.index != view.world(node).master.index:
                return []
            line = job.command
            if job.parameters:
                line += " " + shlex.join(self.contract.arguments(view, node))
            cwd = view.site.path(node, self.layout.work)
            return [ProcessPlan(f"node-{node.index}", ("/bin/bash", "-c", line), cwd)]
        argv = (*_interpreter(view.site, f"{code}/{job.entry}"), *self.contract.arguments(view, node))
        helpers = [
            ProcessPlan(name, argv, view.site.path(node, self.layout.work), dict(env) | job.env)
            for name, env in self.launcher.helper_env(view, node).items()
        ]
        return helpers + [self._rank(node, local, argv) for local in range(len(node.devices))]

    def _rank(self, node: Node, local: int, argv: tuple[str, ...]) -> ProcessPlan:
        view = self.view
        rank = node.first_rank + local
        env = {
            "TRAINSHED_RANK": str(rank),
            "TRAINSHED_WORLD_RANK": str(view.world(node).rank(node, local)),
            "TRAINSHED_LOCAL_RANK": str(local),
        }
        env |= self.launcher.rank_env(view, node, local)
        env |= self.contract.rank_env(view, node, local)
        cwd = view.site.path(node, self.contract.rank_dir(view, node, local))
        return ProcessPlan(
            f"rank-{rank}", argv, cwd, env | {k: v for k, v in view.job.env.items() if k in env}, rank
        )


def _interpreter(site: Site, entry: str) -> tuple[str, ...]:
    if entry.endswith(".py"):
        return (site.python, entry)
    return ("/bin/bash", entry) if entry.endswith((".sh", ".bash")) else (entry,)


def _upload(channel: Channel, folder: str) -> Transfer:
    return Transfer(channel.name, folder, channel.target or "", channel.every, channel.predownload)
