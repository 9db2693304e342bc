"""Plans made for the tests of launchers: pure, without a machine."""

from __future__ import annotations

from typing import Any

from trainshed.plan.model import Plan, ProcessPlan, expanded
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind


def made(
    launcher: str,
    nodes: int = 2,
    devices: int = 2,
    isolated: bool = True,
    keys: tuple[str, ...] = (),
    **fields: Any,
) -> Plan:
    """The plan of a small job on nodes 127.64.0.1, 127.64.0.2, … with ports from 11001 and 11101 on."""
    program = {} if "command" in fields else {"entry": "train.py"}
    resources = {"nodes": nodes, "devices": devices, "kind": fields.pop("kind", "cpu")}
    spec = {"name": "job", "launcher": launcher, "code": "/code", "resources": resources} | program | fields
    hosts = [
        Host(f"worker-{i}", f"127.64.0.{i + 1}", tuple(Device(d) for d in range(devices)), 11001 + 100 * i)
        for i in range(nodes)
    ]
    site = Site(
        python="/env/bin/python",
        search_path="/usr/bin:/bin",
        scratch="/scratch",
        library="/site",
        isolated=isolated,
        keys=keys,
    )
    job = JobSpec.model_validate(spec)
    return plan(job, Topology.of(DeviceKind(resources["kind"]), hosts), site, "run-1")


def ranks(planned: Plan) -> list[ProcessPlan]:
    return [item for node in planned.nodes for item in node.processes if item.rank is not None]


def env_of(planned: Plan, process: ProcessPlan) -> dict[str, str]:
    """All variables of a process, as its agent puts them together."""
    node = next(node for node in planned.nodes if process in node.processes)
    return expanded({**planned.env, **node.env, **process.env})
