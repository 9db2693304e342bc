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
from functools import partial
from pathlib import Path
from typing import Any

from trainshed import devices
from trainshed.agent.processes import descendants
from trainshed.devices.base import DeviceReader, no_reader
from trainshed.spec.kinds import DeviceKind


class NodeMeter(threading.Thread):
    """Samples into a JSON-lines file until stopped; a killed agent loses at most the last second."""

    def __init__(self, path: Path, kind: DeviceKind, limit: int = 0, period: float = 1.0) -> None:
        super().__init__(name="meter", daemon=True)
        self._path, self._kind, self._limit, self._period = path, kind, limit, period
        self._over = threading.Event()
        self._used: dict[int, float] = {}
        self._reported: set[str] = set()
        self.memory = 0
        """Bytes used by the node's processes at the last sample: above `limit` only if they truly are."""

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(2.0)

    def run(self) -> None:
        import psutil

        found = self._attempt("devices", partial(devices.reader, self._kind), "devices_not_measured")
        reader, reason = found or (no_reader, "")
        if reason:
            self._write({"devices_not_measured": reason})
        self._attempt("cpu_percent", psutil.cpu_percent)
        while not self._over.wait(self._period):
            self._write(self._sample(psutil, reader))

    def _sample(self, psutil: Any, reader: DeviceReader) -> dict[str, Any]:
        attempt = self._attempt
        memory, spent = attempt("node", partial(self._measure, psutil)) or (None, None)
        disk = attempt("disk", psutil.disk_io_counters)
        net = attempt("net", psutil.net_io_counters)
        return {
            "cpu_percent": attempt("cpu_percent", psutil.cpu_percent),
            "node_cpu_percent": None if spent is None else round(100 * spent / self._period, 1),
            "memory_bytes": attempt("memory_bytes", lambda: psutil.virtual_memory().used),
            "node_memory_bytes": memory,
            "disk_read_bytes": disk.read_bytes if disk else None,
            "disk_write_bytes": disk.write_bytes if disk else None,
            "net_sent_bytes": net.bytes_sent if net else None,
            "net_received_bytes": net.bytes_recv if net else None,
            "devices": self._read_devices(reader),
        }

    def _measure(self, psutil: Any) -> tuple[int, float]:
        """Bytes held by the node's processes, and the seconds they computed since the last sample."""
        sizes, seconds = {}, {}
        for pid in descendants():
            try:
                process = psutil.Process(pid)
                sizes[pid] = process.memory_info().rss
                times = process.cpu_times()
                seconds[pid] = times.user + times.system
            except psutil.Error:
                continue
        spent = sum(max(0.0, value - self._used.get(pid, 0.0)) for pid, value in seconds.items())
        self._used = seconds
        memory = sum(sizes.values())
        self.memory = _held(psutil, sizes) if self._limit and memory > self._limit else memory
        return memory, spent

    def _read_devices(self, reader: DeviceReader) -> list[dict[str, Any]]:
        key = "devices_not_measured"
        each = partial(self._attempt, key=key)
        return self._attempt("devices", partial(reader, each), key) or []

    def _attempt(self, name: str, read: Callable[[], Any], key: str = "not_measured") -> Any:
        try:
            return read()
        except Exception as error:  # drivers have many ways to fail; each is reported, none ends the rest
            if name not in self._reported:
                self._reported.add(name)
                self._write({key: f"{name}: {error}"})
            return None

    def _write(self, line: dict[str, Any]) -> None:
        try:
            with self._path.open("a") as stream:
                stream.write(json.dumps({"t": round(time.time(), 3), **line}) + "\n")
        except OSError:
            # A full disk costs samples; the memory must still be watched.
            pass


def _held(psutil: Any, sizes: dict[int, int]) -> int:
    """Bytes held by processes of these resident sizes, what they share counted once."""
    return sum(_share(psutil, pid, size) for pid, size in sizes.items())


def _share(psutil: Any, pid: int, size: int) -> int:
    """A process' part of its pages as the kernel divides them; all of them where it does not say."""
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except (psutil.Error, OSError):
        return size
