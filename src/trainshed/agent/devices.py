"""The devices of this machine: found by the vendors' own tools, never guessed."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

from trainshed.plan.topology import Device
from trainshed.spec.kinds import DeviceKind


@dataclass(frozen=True, slots=True)
class Found:
    """Devices of one kind, or why none were found."""

    devices: tuple[Device, ...]
    reason: str = ""


def find(kind: DeviceKind) -> Found:
    """What this machine has of a kind."""
    if kind is DeviceKind.NVIDIA:
        return _nvidia()
    if kind is DeviceKind.ASCEND:
        return _ascend()
    return Found(tuple(Device(index) for index in range(cpu_slots())))


def cpu_slots() -> int:
    """How many CPU ranks this machine takes: more than cores, since small jobs may share them."""
    return int(os.environ.get("TRAINSHED_CPU_SLOTS") or max(64, 16 * (os.cpu_count() or 1)))


def _nvidia() -> Found:
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except ImportError:
        return Found((), "the NVIDIA library is not installed (pip install 'trainshed[nvidia]')")
    except Exception as error:  # NVML has many ways to be absent, all of which mean: none found
        return Found((), f"NVML finds none: {error}")
    return Found(tuple(Device(index) for index in range(count)))


def _ascend() -> Found:
    tool = shutil.which("npu-smi")
    if tool is None:
        return Found((), "npu-smi is not installed: this machine has no Ascend driver")
    from trainshed.plan.hccn import parse_hccn_conf, parse_npu_smi_info

    try:
        text = subprocess.run([tool, "info"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Found((), f"npu-smi finds none: {error}")
    addresses: dict[int, str] = {}
    try:
        with open("/etc/hccn.conf") as stream:
            addresses = {item.device_id: item.ip for item in parse_hccn_conf(stream.read())}
    except OSError:
        pass
    indexes = range(len(parse_npu_smi_info(text).chips))
    return Found(tuple(Device(index, addresses.get(index)) for index in indexes))
