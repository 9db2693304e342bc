"""NVIDIA GPUs, found and read through NVML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainshed.devices.base import Attempt, Device, DeviceReader, Found, no_reader


def find() -> Found:
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except ImportError:
        return Found((), "the NVIDIA library is not installed (pip install 'trainshed[nvidia]')")
    except Exception as error:  # NVML has many ways to be absent, all of which mean: none found
        return Found((), f"NVML found no devices: {error}")
    return Found(tuple(Device(index) for index in range(count)))


def visible_env(indexes: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": indexes, "NVIDIA_VISIBLE_DEVICES": indexes}


def reader() -> tuple[DeviceReader, str]:
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception as error:  # NVML has many ways to be absent; each is a reason to say so, none to fail
        return no_reader, f"NVML: {error}"

    def read(attempt: Attempt) -> list[dict[str, Any]]:
        return [_read(pynvml, index, handle, attempt) for index, handle in enumerate(handles)]

    return read, ""


def _read(pynvml: Any, index: int, handle: Any, attempt: Attempt) -> dict[str, Any]:
    fields: dict[str, Callable[[], Any]] = {
        "util_percent": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "memory_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used,
        "power_watts": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    }
    values = {name: attempt(f"nvidia {index} {name}", value) for name, value in fields.items()}
    return {"kind": "nvidia", "index": index, **values}
