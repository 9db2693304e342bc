"""Ascend NPUs, found and read through npu-smi; their network addresses are in /etc/hccn.conf."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from trainshed.devices.base import Attempt, Device, DeviceReader, Found, no_reader


def find() -> Found:
    tool = shutil.which("npu-smi")
    if tool is None:
        return Found((), "npu-smi is not installed: this machine has no Ascend driver")
    from trainshed.devices.hccn import parse_hccn_conf, parse_npu_smi_info

    try:
        text = subprocess.run([tool, "info"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Found((), f"npu-smi found no devices: {error}")
    addresses: dict[int, str] = {}
    try:
        with open("/etc/hccn.conf") as stream:
            addresses = {item.device_id: item.ip for item in parse_hccn_conf(stream.read())}
    except OSError:
        pass
    indexes = range(len(parse_npu_smi_info(text).chips))
    return Found(tuple(Device(index, addresses.get(index)) for index in indexes))


def visible_env(indexes: str) -> dict[str, str]:
    return {"ASCEND_VISIBLE_DEVICES": indexes}


def reader() -> tuple[DeviceReader, str]:
    tool = shutil.which("npu-smi")
    if tool is None:
        return no_reader, "npu-smi is not installed"
    from trainshed.devices.hccn import parse_npu_smi_info

    def read(_attempt: Attempt) -> list[dict[str, Any]]:
        text = subprocess.run([tool, "info"], capture_output=True, text=True, timeout=5).stdout
        return [
            {
                "kind": "ascend",
                "index": index,
                "util_percent": chip.aicore_percent,
                "memory_bytes": None if chip.hbm_used_mb is None else chip.hbm_used_mb * 2**20,
                "power_watts": chip.power_w,
            }
            for index, chip in enumerate(parse_npu_smi_info(text).chips)
        ]

    return read, ""
