"""Form "devices": version 0.1, one instance per device with its rank (MindSpore 0.3, Apulis).

Read by scripts through `MINDSPORE_HCCL_CONFIG_PATH`. The writer keeps the
layout of the platform's own files to the byte: the devices of an instance
stand on one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainshed.ranktables.fields import Json, as_integer, as_list, as_object, as_optional_text, as_text
from trainshed.ranktables.model import COMPLETED, RankTable, RankTableError, TableDevice, TableServer


def read(document: Json) -> RankTable:
    servers: dict[str, list[TableDevice]] = {}
    for g, group in enumerate(as_list(document, "group_list", "$")):
        path = f"$.group_list[{g}]"
        for i, item in enumerate(as_list(as_object(group, path), "instance_list", path)):
            where = f"{path}.instance_list[{i}]"
            record = as_object(item, where)
            entries = as_list(record, "devices", where)
            if len(entries) != 1:
                raise RankTableError(
                    f"{where} has {len(entries)} devices and one rank_id", "write one instance per device"
                )
            fields = as_object(entries[0], f"{where}.devices[0]")
            device = TableDevice(
                as_integer(fields, "device_id", f"{where}.devices[0]"),
                as_optional_text(fields, "device_ip", f"{where}.devices[0]"),
                as_integer(record, "rank_id", where),
            )
            servers.setdefault(as_text(record, "server_id", where), []).append(device)
    status = as_optional_text(document, "status", "$") or COMPLETED
    return RankTable.build([TableServer(name, devices) for name, devices in servers.items()], status=status)


def write(table: RankTable) -> str:
    return "\n".join(_lines(table)) + "\n"


def _lines(table: RankTable) -> Iterator[str]:
    servers = table.by_server()
    size = table.rank_size
    yield "{"
    yield '    "board_id": "0x0020",'
    yield '    "chip_info": "910",'
    yield '    "deploy_mode": "lab",'
    yield '    "group_count": "1",'
    yield '    "group_list": ['
    yield "        {"
    yield f'            "device_num": "{size}",'
    yield f'            "server_num": "{len(servers)}",'
    yield '            "group_name": "",'
    yield f'            "instance_count": "{size}",'
    yield '            "instance_list": ['
    seats = [(server, device) for server in servers for device in server.devices]
    for i, (server, device) in enumerate(seats):
        yield "                {"
        yield f'                    "devices": [{_device(device)}],'
        yield f'                    "rank_id": "{device.rank}",'
        yield f'                    "server_id": {_quoted(server.server_id)}'
        yield "                }" + ("," if i < size - 1 else "")
    yield "            ]"
    yield "        }"
    yield "    ],"
    # A parameter-plane interface belongs to each device index in use: eth0 to device 0 and so on.
    interfaces = [f"eth{index}" for index in sorted({device.device_id for _, device in seats})]
    yield '    "para_plane_nic_location": "device",'
    yield '    "para_plane_nic_name": ['
    yield ",\n".join(f'        "{name}"' for name in interfaces)
    yield "    ],"
    yield f'    "para_plane_nic_num": "{len(interfaces)}",'
    yield f'    "status": "{table.status}"'
    yield "}"


def _device(device: TableDevice) -> str:
    address = "" if device.device_ip is None else f',"device_ip": {_quoted(device.device_ip)}'
    return f'{{"device_id": "{device.device_id}"{address}}}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
