"""Form "pods": version 0.1, groups of pods (ModelArts' `jobstart_hccl.json`, TensorFlow on Apulis).

The form has no rank field. Ranks follow from the order: groups as listed,
within a group the pods by the index at the end of their names (as listed when
a name has none), within a pod the devices as listed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from trainshed.ranktables.fields import Json, as_integer, as_list, as_object, as_optional_text, as_text
from trainshed.ranktables.model import (
    COMPLETED,
    RankTable,
    RankTableError,
    RankTableNotReadyError,
    TableDevice,
    TableServer,
)

FILE_NAME = "jobstart_hccl.json"
GROUP_NAME = "job-trainjob"

_INDEX = re.compile(r"-(\d{1,9})$")


def pod_index(name: str) -> int | None:
    """The index a pod's name ends with: 3 for "jobx-job-trainjob-3"."""
    found = _INDEX.search(name)
    return int(found[1]) if found else None


def rank_order(names: Sequence[str]) -> list[int]:
    """Positions of the pods in the order that gives ranks."""
    indexes = [pod_index(name) for name in names]
    if any(index is None for index in indexes):
        return list(range(len(names)))
    return sorted(range(len(names)), key=lambda position: indexes[position] or 0)


def read(document: Json) -> RankTable:
    status = as_optional_text(document, "status", "$") or COMPLETED
    if status != COMPLETED and not document.get("group_list"):
        raise RankTableNotReadyError(
            f'the rank table has status "{status}" and no devices yet', "read it again until it is completed"
        )
    servers: list[TableServer] = []
    rank = 0
    for g, group in enumerate(as_list(document, "group_list", "$")):
        path = f"$.group_list[{g}]"
        pods = _instances(as_object(group, path), path)
        for position in rank_order([name for name, _, _ in pods]):
            name, server_id, devices = pods[position]
            ranked = [TableDevice(device_id, ip, rank + i) for i, (device_id, ip) in enumerate(devices)]
            rank += len(ranked)
            servers.append(TableServer(server_id, ranked, name))
    return RankTable.build(servers, status=status)


def _instances(group: Json, path: str) -> list[tuple[str, str, list[tuple[int, str | None]]]]:
    pods = []
    for i, item in enumerate(as_list(group, "instance_list", path)):
        where = f"{path}.instance_list[{i}]"
        record = as_object(item, where)
        devices = []
        for j, entry in enumerate(as_list(record, "devices", where)):
            spot = f"{where}.devices[{j}]"
            fields = as_object(entry, spot)
            devices.append(
                (as_integer(fields, "device_id", spot), as_optional_text(fields, "device_ip", spot))
            )
        pods.append((as_text(record, "pod_name", where), as_text(record, "server_id", where), devices))
    return pods


def write(table: RankTable, *, group_name: str = GROUP_NAME, job_id: str = "job0") -> str:
    """One group. Entries without a pod name get `<job_id>-<group_name>-<i>` in the order of their ranks."""
    entries = sorted(table.servers, key=lambda server: min((d.rank for d in server.devices), default=0))
    names = [server.pod_name or f"{job_id}-{group_name}-{i}" for i, server in enumerate(entries)]
    _refuse_changed_ranks(entries, names)
    document = {
        "status": table.status,
        "group_count": "1",
        "group_list": [
            {
                "group_name": group_name,
                "device_count": str(table.rank_size),
                "instance_count": str(len(entries)),
                "instance_list": [
                    {
                        "pod_name": name,
                        "server_id": server.server_id,
                        "devices": [_device(device) for device in server.devices],
                    }
                    for name, server in zip(names, entries, strict=True)
                ],
            }
        ],
    }
    return json.dumps(document, indent=4, ensure_ascii=False) + "\n"


def _refuse_changed_ranks(entries: Sequence[TableServer], names: Sequence[str]) -> None:
    implied = (device for position in rank_order(names) for device in entries[position].devices)
    for rank, device in enumerate(implied):
        if device.rank != rank:
            raise RankTableError(
                f"the pods form cannot hold this table: its order would turn rank {device.rank} into {rank}",
                "number the ranks server by server and name the pods in that order",
            )


def _device(device: TableDevice) -> dict[str, str]:
    address = {} if device.device_ip is None else {"device_ip": device.device_ip}
    return {"device_id": str(device.device_id), **address}
