"""What a node uses, once a second: processor, memory, disk, network and devices.

On a virtual node the machine's counters are its host's; what the node's own
processes use is given beside them. A device that cannot be read is left out,
and the first line says why.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainshed.agent.processes import descendants
from trainshed.spec.kinds import DeviceKind

Reader = Callable[[], list[dict[str, Any]]]


class Meter(threading.Thread):
    """Samples into a JSON-lines file until stopped; a killed agent loses at most the last second."""

    def __init__(self, path: Path, kind: DeviceKind, period: float = 1.0) -> None:
        super().__init__(name="meter", daemon=True)
        self._path, self._kind, self._period = path, kind, period
        self._over = threading.Event()
        self.memory = 0
        """Bytes used by the node's processes at the last sample."""

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(2.0)

    def run(self) -> None:
        import psutil

        devices, reason = device_reader(self._kind)
        psutil.cpu_percent()
        used: dict[int, float] = {}
        with self._path.open("a", buffering=1) as stream:
            if reason:
                stream.write(json.dumps({"t": round(time.time(), 3), "devices_not_measured": reason}) + "\n")
            while not self._over.wait(self._period):
                stream.write(json.dumps(self._sample(psutil, used, devices)) + "\n")

    def _sample(self, psutil: Any, used: dict[int, float], devices: Reader) -> dict[str, Any]:
        memory, seconds = 0, {}
        for pid in descendants():
            try:
                process = psutil.Process(pid)
                memory += process.memory_info().rss
                times = process.cpu_times()
                seconds[pid] = times.user + times.system
            except psutil.Error:
                continue
        spent = sum(max(0.0, value - used.get(pid, 0.0)) for pid, value in seconds.items())
        used.clear()
        used.update(seconds)
        self.memory = memory
        disk, net = psutil.disk_io_counters(), psutil.net_io_counters()
        return {
            "t": round(time.time(), 3),
            "cpu_percent": psutil.cpu_percent(),
            "node_cpu_percent": round(100 * spent / self._period, 1),
            "memory_bytes": psutil.virtual_memory().used,
            "node_memory_bytes": memory,
            "disk_read_bytes": disk.read_bytes if disk else None,
            "disk_write_bytes": disk.write_bytes if disk else None,
            "net_sent_bytes": net.bytes_sent,
            "net_received_bytes": net.bytes_recv,
            "devices": devices(),
        }


def device_reader(kind: DeviceKind) -> tuple[Reader, str]:
    """How the node's devices are read, and why not if they cannot be."""
    if kind is DeviceKind.NVIDIA:
        return _nvidia_reader()
    if kind is DeviceKind.ASCEND:
        return _ascend_reader()
    return list, ""


def _nvidia_reader() -> tuple[Reader, str]:
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception as error:  # NVML has many ways to be absent; each is a reason to say so, none to fail
        return list, f"NVML: {error}"

    def read() -> list[dict[str, Any]]:
        return [
            {
                "kind": "nvidia",
                "index": index,
                "util_percent": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).used,
                "power_watts": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            }
            for index, handle in enumerate(handles)
        ]

    return read, ""


def _ascend_reader() -> tuple[Reader, str]:
    import shutil
    import subprocess

    tool = shutil.which("npu-smi")
    if tool is None:
        return list, "npu-smi is not installed"
    from trainshed.plan.hccn import parse_npu_smi_info

    def read() -> list[dict[str, Any]]:
        try:
            text = subprocess.run([tool, "info"], capture_output=True, text=True, timeout=5).stdout
        except (OSError, subprocess.TimeoutExpired):
            return []
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
