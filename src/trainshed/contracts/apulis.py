"""Contract `apulis`: the Apulis platform (DLWorkspace), with MindSpore on NPUs and Horovod on GPUs.

Each worker gets its own and every peer's addresses, ports and NPU
addresses. Rank tables and host files are in the home, below names of the job,
and in /job. The home is the user's: all nodes of all jobs share it, and it is
kept. What belongs to one job in it (keys, tables, host file) is its nodes' own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainshed.contracts import _tables
from trainshed.contracts.base import Contract, choice
from trainshed.plan.model import Env, FilePlan
from trainshed.plan.topology import Node, Port, World
from trainshed.plan.view import Layout, View
from trainshed.ranktables import Form, write
from trainshed.ranktables.hosts import HostSlots, write_hostfile
from trainshed.spec.kinds import DeviceKind, Mode

_DEVICE_TYPES = {DeviceKind.ASCEND: "huawei_npu_arm64", DeviceKind.NVIDIA: "Nvidia", DeviceKind.CPU: "cpu"}


_FAST_HOSTS = "/job/ib_config"
"""Jobs of one user that run at the same time have their own hosts: home only links to them."""


class Apulis(Contract):
    promises_ssh = True
    options: Mapping[str, str] = {
        "home": "kept (for the user, shared by all jobs; the default) or private (to the run)"
    }

    def layout(self, view: View) -> Layout:
        home = _home(view)
        return Layout(
            home=home,
            code="/job/code",
            work="/job/code",
            inputs={c.name: f"/data/{c.name}" for c in view.job.inputs},
            outputs={c.name: f"/job/outputs/{c.name}" for c in view.job.outputs},
            private=("/job", "/data", "/work", f"{home}/.ssh", f"{home}/.npu"),
            folders=(f"{home}/tensorboard/{view.run}/logs",),
            kept_home=choice(view, "home", ("kept", "private")) == "kept",
            links={f"{home}/ib_config": _FAST_HOSTS},
        )

    def names(self, view: View, node: Node) -> Sequence[str]:
        name, fast = _names(node)
        return (fast,) if name == node.name else (name, fast)

    def common_env(self, view: View) -> Env:
        job, kind = view.job, view.topology.kind
        env = {
            "DLWS_JOB_ID": view.run,
            "DLWS_USER_NAME": view.site.user,
            "DLWS_USER_EMAIL": f"{view.site.user}@localhost",
            "DLWS_VC_NAME": view.site.team,
            "DLWS_ROLE_NAME": "worker" if len(view.topology.nodes) > 1 else "master",
            "DLWS_NUM_PS": "0",
            "DLWS_GPU_TYPE": _DEVICE_TYPES[kind],
            "DLWS_IS_NPU_JOB": "true" if kind is DeviceKind.ASCEND else "false",
            "DLWS_HOST_NETWORK": "enable",
            "DLWS_LAUNCH_CMD": job.command or f"/job/code/{job.entry}",
        }
        env |= {
            name: str(value)
            for name, value in (("DLWS_UID", view.site.uid), ("DLWS_GID", view.site.gid))
            if value is not None
        }
        if job.mode is Mode.DISTRIBUTED:
            env |= _peers(view, view.world(view.topology.nodes[0]))
        return env

    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        env = {
            "DLWS_ROLE_IDX": str(node.index),
            "DLWS_NUM_GPU_PER_WORKER": str(len(node.devices)),
            "DLWS_SD_SELF_IP": node.address,
            "DLWS_SD_SELF_SSH_PORT": str(node.port(Port.SSH)),
            "DLWS_SD_SELF_IB_IP": node.address,
            "DLWS_SD_SELF_HOST_IP": node.address,
            "VISIBLE_IDS": ",".join(str(device.index) for device in node.devices),
        }
        if view.topology.kind is DeviceKind.ASCEND:
            env["NPU_IPS"] = _npu_addresses(view, node)
            env["MINDSPORE_HCCL_CONFIG_PATH"] = view.site.path(node, f"{_tables_folder(view)}/hccl_ms.json")
        if view.job.mode is Mode.SINGLE_SERVER:
            env |= _peers(view, world)
        return env

    def rank_env(self, view: View, node: Node, local: int) -> Env:
        if view.topology.kind is not DeviceKind.ASCEND:
            return {}
        world = view.world(node)
        return {
            "DEVICE_ID": str(node.devices[local].index),
            "RANK_ID": str(world.rank(node, local)),
            "RANK_SIZE": str(world.size),
        }

    def common_files(self, view: View) -> Sequence[FilePlan]:
        if view.job.mode is Mode.SINGLE_SERVER:
            return ()
        return _files(view, view.world(view.topology.nodes[0]))

    def node_files(self, view: View, node: Node) -> Sequence[FilePlan]:
        return _files(view, view.world(node)) if view.job.mode is Mode.SINGLE_SERVER else ()

    def notes(self, view: View) -> Sequence[str]:
        emulated = view.site.emulate and view.topology.kind is DeviceKind.ASCEND
        return (_tables.NOTE,) if emulated else ()


def _home(view: View) -> str:
    return f"/home/{view.site.user}"


def _tables_folder(view: View) -> str:
    return f"{_home(view)}/.npu/{view.run}"


def _names(node: Node) -> tuple[str, str]:
    return f"worker-{node.index}", f"ib-worker-{node.index}"


def _files(view: View, world: World) -> tuple[FilePlan, ...]:
    slots = [(_names(node), len(node.devices)) for node in world.nodes]
    files = (
        FilePlan("/job/hostfile", write_hostfile(HostSlots(name, n) for (name, _), n in slots)),
        FilePlan(_FAST_HOSTS, write_hostfile(HostSlots(fast, n) for (_, fast), n in slots)),
    )
    if view.topology.kind is not DeviceKind.ASCEND:
        return files
    table = _tables.table(view, world, lambda node: _names(node)[0])
    folder = _tables_folder(view)
    return (
        *files,
        FilePlan(f"{folder}/hccl_ms.json", write(table, Form.DEVICES)),
        FilePlan(f"{folder}/hccl_tf.json", write(table, Form.PODS)),
    )


def _peers(view: View, world: World) -> dict[str, str]:
    """The same for all who train together; each peer's values are its own."""
    env = {"DLWS_NUM_WORKER": str(len(world.nodes)), "DLWS_WORKER_NUM": str(len(world.nodes))}
    for i, node in enumerate(world.nodes):
        peer = f"DLWS_SD_worker{i}"
        env |= {
            f"{peer}_IP": node.address,
            f"{peer}_SSH_PORT": str(node.port(Port.SSH)),
            f"{peer}_IB_IP": node.address,
            f"{peer}_HOST_IP": node.address,
        }
        if view.topology.kind is DeviceKind.ASCEND:
            env[f"{peer}_NPU_IP_LIST"] = _npu_addresses(view, node)
    return env


def _npu_addresses(view: View, node: Node) -> str:
    pairs = ((device.index, _tables.address(view, node, i)) for i, device in enumerate(node.devices))
    return ",".join(f"{index}:{address}" for index, address in pairs if address is not None)


CONTRACT = Apulis()
