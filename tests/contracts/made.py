"""Plans made for the tests of contracts: pure, without a machine."""

from __future__ import annotations

from typing import Any

from trainshed.plan.model import FilePlan, NodePlan, Plan, ProcessPlan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind

RUN = "run-1"


def site(**more: Any) -> Site:
    given = {
        "python": "/env/bin/python",
        "search_path": "/usr/bin:/bin",
        "scratch": "/scratch",
        "library": "/site",
        "user": "ann",
        "team": "vision",
        "uid": 1000,
        "gid": 100,
        "homes": "/shed/homes",
    }
    return Site(**{**given, **more})


def hosts(nodes: int, devices: int, first: int = 0) -> list[Host]:
    """127.64.0.1, … with ports from 11001 and 11101 on; devices have addresses 192.1.<node>.<device>."""
    return [
        Host(
            f"worker-{i}",
            f"127.64.{i // 250}.{i % 250 + 1}",
            tuple(Device(first + d, f"192.1.{i % 250}.{d + 1}") for d in range(devices)),
            11001 + (100 * i) % 50000,
        )
        for i in range(nodes)
    ]


def made(contract: str, shape: str = "2x2:ascend", **fields: Any) -> Plan:
    """The plan of a small job under a contract; fields are the job's, `site` and `hosts` the engine's."""
    given = fields.pop("site", None) or site()
    machines = fields.pop("hosts", None)
    program = {} if "command" in fields else {"entry": "train.py"}
    spec = {"name": "job", "contract": contract, "code": "/home/ann/resnet", "resources": shape}
    job = JobSpec.model_validate({"launcher": "mindspore", **spec, **program, **fields})
    machines = machines or hosts(job.resources.nodes, job.resources.devices)
    return plan(job, Topology.of(DeviceKind(job.resources.kind), machines), given, RUN)


def ranks(planned: Plan) -> list[ProcessPlan]:
    return [item for node in planned.nodes for item in node.processes if item.rank is not None]


def env_of(planned: Plan, process: ProcessPlan) -> dict[str, str]:
    """All variables of a process, as its agent puts them together."""
    node = next(node for node in planned.nodes if process in node.processes)
    return {**planned.env, **node.env, **process.env}


def node_env(planned: Plan, index: int) -> dict[str, str]:
    return {**planned.env, **planned.nodes[index].env}


def files_of(planned: Plan, node: NodePlan) -> dict[str, FilePlan]:
    """All files of a node, by where they are there."""
    found = {node.placed(item.path): item for item in planned.files}
    return found | {item.path: item for item in node.files}
