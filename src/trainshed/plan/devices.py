"""How each kind of device is shown to the processes of a node. One place for all kinds."""

from __future__ import annotations

from trainshed.plan.topology import Node
from trainshed.spec.kinds import DeviceKind


def visible_env(kind: DeviceKind, node: Node, cpus: int, emulate: bool) -> dict[str, str]:
    """Variables by which frameworks see just the node's devices."""
    ids = ",".join(str(device.index) for device in node.devices)
    if kind is DeviceKind.NVIDIA:
        return {"CUDA_VISIBLE_DEVICES": ids, "NVIDIA_VISIBLE_DEVICES": ids}
    env = {}
    if kind is DeviceKind.ASCEND:
        env["ASCEND_VISIBLE_DEVICES"] = ids
        if not emulate:
            return env
    threads = max(1, cpus // max(1, len(node.devices)))
    return env | {"OMP_NUM_THREADS": str(threads)}
