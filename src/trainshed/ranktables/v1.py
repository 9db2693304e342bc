"""Form "v1": version 1.0, a list of servers (MindSpore today, `RANK_TABLE_FILE`)."""

from __future__ import annotations

import json

from trainshed.ranktables.fields import Json, as_integer, as_list, as_object, as_optional_text, as_text
from trainshed.ranktables.model import COMPLETED, RankTable, TableDevice, TableServer


def read(document: Json) -> RankTable:
    servers = []
    for i, item in enumerate(as_list(document, "server_list", "$")):
        path = f"$.server_list[{i}]"
        record = as_object(item, path)
        devices = []
        for j, entry in enumerate(as_list(record, "device", path)):
            where = f"{path}.device[{j}]"
            fields = as_object(entry, where)
            devices.append(
                TableDevice(
                    as_integer(fields, "device_id", where),
                    as_optional_text(fields, "device_ip", where),
                    as_integer(fields, "rank_id", where),
                )
            )
        host_nic_ip = as_optional_text(record, "host_nic_ip", path) or "reserve"
        servers.append(TableServer(as_text(record, "server_id", path), devices, None, host_nic_ip))
    return RankTable.build(servers, status=as_optional_text(document, "status", "$") or COMPLETED)


def write(table: RankTable) -> str:
    servers = table.by_server()
    document = {
        "version": "1.0",
        "server_count": str(len(servers)),
        "server_list": [
            {
                "server_id": server.server_id,
                "device": [_device(device) for device in server.devices],
                "host_nic_ip": server.host_nic_ip,
            }
            for server in servers
        ],
        "status": table.status,
    }
    return json.dumps(document, indent=4, ensure_ascii=False) + "\n"


def _device(device: TableDevice) -> dict[str, str]:
    address = {} if device.device_ip is None else {"device_ip": device.device_ip}
    return {"device_id": str(device.device_id), **address, "rank_id": str(device.rank)}
