"""SSH between the nodes of a job, as far as a plan can say it: ports, names, host file, programs.

Keys are not planned: each node makes its own when the run starts, and only
their public halves travel (agent/ssh.py). Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from trainshed.plan.model import NodePlan
from trainshed.plan.topology import Node, Port, Topology, World
from trainshed.ranktables.hosts import HostSlots, write_hostfile

HOSTFILE = "/job/hostfile"
CLIENTS = ("ssh", "scp", "sftp")

_ALWAYS_PER_NODE = ("TRAINSHED_METRICS_DIR",)
_NEEDED = ("HOME", "PATH", "TMPDIR")


def ports(topology: Topology) -> tuple[int, ...]:
    """The port on which each node answers, in the order of nodes."""
    return tuple(node.port(Port.SSH) for node in topology.nodes)


def names(node: Node) -> tuple[str, ...]:
    """By which names a node is reached whatever its platform calls it."""
    return (f"worker-{node.index}", f"ib-worker-{node.index}")


def config_path(home: str) -> str:
    return f"{home}/.ssh/config"


def hostfile(world: World) -> str:
    """For `mpirun -hostfile` and `horovodrun -hostfile`: who trains together, with how many devices."""
    return write_hostfile(HostSlots(names(node)[0], len(node.devices)) for node in world.nodes)


def clients(home: str) -> dict[str, str]:
    """Programs put before the system's of the same name.

    OpenSSH looks for its settings in the home that the password file names, not in $HOME;
    a node's user has its own home, so the path of its settings is given.
    """
    return {name: _CLIENT.format(name=name, config=shlex.quote(config_path(home))) for name in CLIENTS}


def common_env(nodes: Sequence[NodePlan], secrets: Iterable[str]) -> dict[str, str]:
    """What programs that start processes by SSH must know.

    TRAINSHED_NODE_VARIABLES names what must not be passed from one node to another, since a
    process has its own there: variables in which nodes differ, and secrets, which would be seen
    on a command line.
    """
    first = nodes[0].env
    differing = {name for node in nodes[1:] for name in node.env if node.env[name] != first.get(name)}
    per_node = {*differing.difference(_NEEDED), *_ALWAYS_PER_NODE, *secrets}
    return {
        "TRAINSHED_NODE_VARIABLES": ",".join(sorted(per_node)),
        # A node's user may be root within its own node, which OpenMPI's mpirun refuses without these two variables.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


_CLIENT = """#!/bin/bash
here=$(cd "$(dirname "$0")" && pwd)
rest=
IFS=: read -ra places <<< "$PATH"
for place in "${{places[@]}}"; do
    [ "$place" = "$here" ] || rest="$rest${{rest:+:}}$place"
done
program=$(PATH=$rest command -v {name}) || {{ echo "{name}: not installed on this node" >&2; exit 127; }}
exec "$program" -F {config} "$@"
"""
