"""Metering goes on whatever cannot be read, and memory that processes share is counted once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import until
from trainshed.agent import metering
from trainshed.agent.metering import NodeMeter
from trainshed.spec.kinds import DeviceKind

pytestmark = [pytest.mark.foundation]

FORKED = """
import os, sys, time
kept = bytearray(b"x") * (60 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two devices, one of which cannot tell its power."""

    def power(handle: int) -> int:
        if handle == 1:
            raise RuntimeError("Not Supported")
        return 250_000

    made: Any = types.ModuleType("pynvml")
    made.nvmlInit = lambda: None
    made.nvmlDeviceGetCount = lambda: 2
    made.nvmlDeviceGetHandleByIndex = lambda index: index
    made.nvmlDeviceGetUtilizationRates = lambda _: types.SimpleNamespace(gpu=80)
    made.nvmlDeviceGetMemoryInfo = lambda _: types.SimpleNamespace(used=1 << 30)
    made.nvmlDeviceGetPowerUsage = power
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def sampled(path: Path, kind: DeviceKind, count: int = 3) -> list[dict[str, Any]]:
    meter = NodeMeter(path, kind, period=0.02)
    meter.start()
    until(lambda: sum("devices" in line for line in lines(path)) >= count, 10, "samples")
    meter.stop()
    return lines(path)


def test_what_one_device_cannot_tell_is_said_once_and_the_rest_is_measured(tmp_path: Path, nvml: Any) -> None:
    told = sampled(tmp_path / "metrics.jsonl", DeviceKind.NVIDIA)
    reasons = [line["devices_not_measured"] for line in told if "devices_not_measured" in line]
    assert reasons == ["nvidia 1 power_watts: Not Supported"]
    for line in told:
        if "devices" in line:
            assert [device["power_watts"] for device in line["devices"]] == [250.0, None]
            assert [device["util_percent"] for device in line["devices"]] == [80, 80]


def test_no_error_ends_the_metering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[dict[str, Any]]:
        raise ValueError("cheese")

    monkeypatch.setattr(metering.devices, "reader", lambda _: (broken, ""))
    monkeypatch.setattr("psutil.disk_io_counters", broken)
    monkeypatch.setattr("psutil.cpu_percent", broken)
    told = sampled(tmp_path / "metrics.jsonl", DeviceKind.CPU)
    assert [line["not_measured"] for line in told if "not_measured" in line] == [
        "cpu_percent: cheese",
        "disk: cheese",
    ]
    assert [line["devices_not_measured"] for line in told if "devices_not_measured" in line] == [
        "devices: cheese"
    ]
    assert all(line["node_memory_bytes"] is not None for line in told if "devices" in line)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """A process with 60 MiB and four forks that share them."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKED], stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        assert parent.stdout and parent.stdout.readline() == b"up\n"
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        pids = {parent.pid, *map(int, children)}
        monkeypatch.setattr(metering, "descendants", lambda: pids)
        yield pids

        os.killpg(parent.pid, signal.SIGKILL)


def test_shared_memory_counts_once_when_the_limit_is_in_question(tmp_path: Path, forked: set[int]) -> None:
    limit = 150 << 20
    meter = NodeMeter(tmp_path / "metrics.jsonl", DeviceKind.CPU, limit)
    resident, _ = meter._measure(psutil)
    assert len(forked) == 5 and resident > limit, "counted for each process"
    assert 60 << 20 < meter.memory < limit
    below = NodeMeter(tmp_path / "metrics.jsonl", DeviceKind.CPU, 50 << 20)
    below._measure(psutil)
    assert below.memory > 50 << 20, "too much is too much"


def test_what_the_kernel_does_not_tell_counts_in_full() -> None:
    assert metering._share(psutil, 2**22 + 1, 4096) == 4096
