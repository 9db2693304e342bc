"""`system.json`: the 33 fields of a system description, filled from what the machine reports.

A field that this machine does not report is "unknown", never a guess; `sources`
says where each value came from. Fields given by the user win.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

FIELDS = (
    "submitter", "division", "status", "system_name", "number_of_nodes",
    "host_processors_per_node", "host_processor_model_name", "host_processor_core_count",
    "host_processor_vcpu_count", "host_processor_frequency", "host_processor_caches",
    "host_processor_interconnect", "host_memory_capacity", "host_storage_type", "host_storage_capacity",
    "host_networking", "host_networking_topology", "host_memory_configuration", "accelerators_per_node",
    "accelerator_model_name", "accelerator_host_interconnect", "accelerator_frequency",
    "accelerator_on-chip_memories", "accelerator_memory_configuration", "accelerator_memory_capacity",
    "accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes", "framework",
    "other_software_stack", "operating_system", "sw_notes",
)  # fmt: skip
UNKNOWN = "unknown"
STATUS = "Research, Development, or Internal (RDI)"


def describe(
    nodes: int = 1, framework: str = "", overrides: Mapping[str, str] | None = None
) -> dict[str, object]:
    """The description of `nodes` machines like this one."""
    values: dict[str, str] = dict.fromkeys(FIELDS, UNKNOWN)
    sources: dict[str, str] = {}
    for read in (_processor, _memory, _storage, _network, _accelerators, _software):
        for field, (value, source) in read().items():
            if value:
                values[field], sources[field] = value, source
    for field, value in {
        "number_of_nodes": str(nodes),
        "framework": framework or UNKNOWN,
        "division": "open",
        "status": STATUS,
        "system_name": platform.node() or UNKNOWN,
        "hw_notes": "",
        "sw_notes": "",
    }.items():
        values[field] = value
        sources[field] = "benchmark"
    for field, value in (overrides or {}).items():
        if field in values and str(value).strip():
            values[field], sources[field] = str(value), "given by the user"
    return {**values, "sources": sources}


def to_json(description: Mapping[str, object]) -> str:
    return json.dumps(description, indent=2, ensure_ascii=False) + "\n"


Fields = dict[str, tuple[str, str]]


def _processor() -> Fields:
    text = _read("/proc/cpuinfo")
    blocks = [b for b in text.split("\n\n") if "processor" in b]
    sockets = set(re.findall(r"^physical id\s*: (\d+)", text, re.M)) or {"0"}
    cores = {(_field(b, "physical id"), _field(b, "core id")) for b in blocks if _field(b, "core id")}
    model = _field(text, "model name") or platform.processor() or platform.machine()
    caches = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size, kind = (_read(index / n).strip() for n in ("level", "size", "type"))
        if size:
            caches.append(f"L{level} {kind} {size}")
    speed = _field(text, "cpu MHz")
    per_socket = max(1, (len(cores) or len(blocks)) // len(sockets))
    return {
        "host_processors_per_node": (str(len(sockets)), "/proc/cpuinfo"),
        "host_processor_model_name": (model, "/proc/cpuinfo"),
        "host_processor_core_count": (str(per_socket), "/proc/cpuinfo"),
        "host_processor_vcpu_count": (str(os.cpu_count() or ""), "os"),
        "host_processor_frequency": (f"{float(speed):.0f} MHz" if speed else "", "/proc/cpuinfo"),
        "host_processor_caches": (", ".join(caches), "/sys/devices/system/cpu"),
    }


def _memory() -> Fields:
    match = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"), re.M)
    if not match:
        return {}
    return {"host_memory_capacity": (f"{int(match.group(1)) / 2**20:.1f} GiB", "/proc/meminfo")}


def _storage() -> Fields:
    kinds = []
    for block in sorted(Path("/sys/block").glob("*")):
        if block.name.startswith(("loop", "ram", "zram", "dm-", "nbd")):
            continue
        rotating = _read(block / "queue/rotational").strip() == "1"
        kinds.append(
            "NVMe SSD" if block.name.startswith("nvme") else "HDD" if rotating else "SSD or virtual disk"
        )
    size = shutil.disk_usage("/").total
    return {
        "host_storage_type": (", ".join(dict.fromkeys(kinds)), "/sys/block"),
        "host_storage_capacity": (f"{size / 2**30:.0f} GiB", "file system /"),
    }


def _network() -> Fields:
    links = []
    for link in sorted(Path("/sys/class/net").glob("*")):
        if link.name == "lo":
            continue
        try:
            speed = _read(link / "speed").strip()
        except OSError:
            speed = ""
        links.append(f"{link.name} {speed} Mbit/s" if speed.isdigit() else link.name)
    return {"host_networking": (", ".join(links[:8]), "/sys/class/net")}


def _accelerators() -> Fields:
    for probe in (_nvidia, _ascend):
        found = probe()
        if found:
            return found
    return {
        "accelerators_per_node": ("0", "neither nvidia-smi nor npu-smi found a device"),
        "accelerator_model_name": ("N/A", "no accelerator"),
    }


def _nvidia() -> Fields:
    query = "name,memory.total,clocks.max.sm,pcie.link.gen.max"
    lines = _run("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
    rows = [[c.strip() for c in line.split(",")] for line in lines.splitlines() if line.count(",") == 3]
    if not rows:
        return {}
    name, memory, clock, generation = rows[0]
    return {
        "accelerators_per_node": (str(len(rows)), "nvidia-smi"),
        "accelerator_model_name": (name, "nvidia-smi"),
        "accelerator_memory_capacity": (memory, "nvidia-smi"),
        "accelerator_frequency": (clock, "nvidia-smi"),
        "accelerator_host_interconnect": (f"PCIe Gen{generation}", "nvidia-smi"),
    }


def _ascend() -> Fields:
    names = re.findall(r"^\|\s*\d+\s+(\S+)\s*\|\s*(?:OK|Warning|Alarm)", _run("npu-smi", "info"), re.M)
    if not names:
        return {}
    return {
        "accelerators_per_node": (str(len(names)), "npu-smi"),
        "accelerator_model_name": (f"Ascend {names[0]}", "npu-smi"),
    }


def _software() -> Fields:
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _read("/etc/os-release"), re.M))
    name = release.get("PRETTY_NAME", platform.system())
    return {
        "operating_system": (f"{name}, Linux {platform.release()}", "/etc/os-release, uname"),
        "other_software_stack": (f"Python {platform.python_version()}", "this interpreter"),
    }


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}\s*: (.*)$", text, re.M)
    return match.group(1).strip() if match else ""


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _run(program: str, *arguments: str) -> str:
    found: Callable[[str], str | None] = shutil.which
    if found(program) is None:
        return ""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
