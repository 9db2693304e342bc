"""What Ascend's tools print, as values: addresses (`hccn_tool`, /etc/hccn.conf), readings (`npu-smi`).

Parsers only: starting the tools is the agent's work. What a tool does not
tell (`NA`, `-`, a missing line) is None, never zero.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainshed.errors import TrainshedError


class AscendOutputError(TrainshedError):
    """A tool of the Ascend driver printed something else than expected."""

    code = "ascend-output"


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    device_id: int
    ip: str
    netmask: str | None = None


@dataclass(frozen=True, slots=True)
class NpuProcess:
    npu_id: int
    chip_id: int
    pid: int
    name: str
    memory_mb: int


@dataclass(frozen=True, slots=True)
class NpuChip:
    """One chip of `npu-smi info`. On two-chip boards only the first chip shows the board's power."""

    npu_id: int
    chip_id: int
    phy_id: int | None
    name: str
    health: str
    bus_id: str
    power_w: float | None
    temperature_c: float | None
    aicore_percent: float | None
    memory_used_mb: int | None
    memory_total_mb: int | None
    hbm_used_mb: int | None
    hbm_total_mb: int | None


@dataclass(frozen=True, slots=True)
class NpuInfo:
    version: str | None
    chips: tuple[NpuChip, ...]
    processes: tuple[NpuProcess, ...]


@dataclass(frozen=True, slots=True)
class NpuUsage:
    """One chip of `npu-smi info -t usages -i N`."""

    npu_id: int
    chip_id: int
    aicore_percent: float | None
    aicpu_percent: float | None
    ctrlcpu_percent: float | None
    memory_capacity_mb: int | None
    memory_percent: float | None
    hbm_capacity_mb: int | None
    hbm_percent: float | None
    hbm_bandwidth_percent: float | None


@dataclass(frozen=True, slots=True)
class NpuPower:
    """One chip of `npu-smi info -t power -i N`; a rated power is not a reading and gives None."""

    npu_id: int
    chip_id: int
    power_w: float | None


_CONF_LINE = re.compile(r"(address|netmask)_(\d+)\s*=\s*(\S+)", re.ASCII)


def parse_hccn_conf(text: str) -> tuple[DeviceAddress, ...]:
    """The addresses in /etc/hccn.conf, by device; keys of other settings are passed over."""
    fields: dict[str, dict[int, str]] = {"address": {}, "netmask": {}}
    for line in text.splitlines():
        found = _CONF_LINE.fullmatch(line.split("#", 1)[0].strip())
        if found:
            fields[found[1]][int(found[2])] = found[3]
    if not fields["address"]:
        raise AscendOutputError(
            "hccn.conf has no address_N",
            "configure the devices with `hccn_tool -i N -ip -s address A netmask M`",
        )
    return tuple(
        DeviceAddress(device, _ip(address, f"address_{device}"), fields["netmask"].get(device))
        for device, address in sorted(fields["address"].items())
    )


def parse_hccn_tool_ip(text: str, device_id: int) -> DeviceAddress:
    """The answer to `hccn_tool -i <device_id> -ip -g`: `ipaddr:` and `netmask:` lines."""
    fields = {key: value for key, value in _pairs(text) if value}
    if "ipaddr" not in fields:
        said = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        raise AscendOutputError(
            f"hccn_tool printed no address for device {device_id}: {said[:200]}",
            f"run `hccn_tool -i {device_id} -ip -g` on the server",
        )
    return DeviceAddress(device_id, _ip(fields["ipaddr"], "ipaddr"), fields.get("netmask"))


def _ip(text: str, field: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise AscendOutputError(
            f"{field} is {text!r}, not an IP address", "correct the device's address"
        ) from error


_VERSION = re.compile(r"npu-smi\s+(\S+)", re.ASCII)
_USED_TOTAL = re.compile(r"(\d+|-|NA)\s*/\s*(\d+|-|NA)", re.ASCII)
_PROCESS_HEADER = re.compile(r"NPU\s+Chip\s*$", re.ASCII)


def parse_npu_smi_info(text: str) -> NpuInfo:
    """The table of `npu-smi info`: two rows a chip, then the processes."""
    version = None
    chips: list[NpuChip] = []
    processes: list[NpuProcess] = []
    board: list[str] | None = None
    in_processes = False
    for line in text.splitlines():
        line = line.strip()
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 1:
            found = _VERSION.match(cells[0])
            version = found[1] if found else version
        elif _PROCESS_HEADER.match(cells[0]):
            in_processes = True
        elif not cells[0][:1].isdigit():
            continue
        elif in_processes:
            processes.append(_process(cells, line))
        elif board is None:
            board = cells
        else:
            chips.append(_chip(board, cells, line))
            board = None
    if not chips:
        said = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        raise AscendOutputError(
            f"npu-smi info lists no chip: {said[:200]}", "check the driver with `npu-smi info`"
        )
    return NpuInfo(version, tuple(chips), tuple(processes))


def _chip(board: list[str], chip: list[str], line: str) -> NpuChip:
    try:
        npu_id, name = board[0].split(None, 1)
        ids = chip[0].split()
        power, temperature = board[2].split()[:2]
        pairs = _USED_TOTAL.findall(chip[2])
        memory, hbm = (pairs[0], pairs[1]) if len(pairs) > 1 else (pairs[0], ("NA", "NA"))
        return NpuChip(
            npu_id=int(npu_id),
            chip_id=int(ids[0]),
            phy_id=int(ids[1]) if len(ids) > 1 else None,
            name=name,
            health=board[1],
            bus_id=chip[1],
            power_w=_number(power),
            temperature_c=_number(temperature),
            aicore_percent=_number(chip[2].split()[0]),
            memory_used_mb=_whole(memory[0]),
            memory_total_mb=_whole(memory[1]),
            hbm_used_mb=_whole(hbm[0]),
            hbm_total_mb=_whole(hbm[1]),
        )
    except (ValueError, IndexError) as error:
        raise AscendOutputError(f"npu-smi info has a row of unknown form: {line[:200]}") from error


def _process(cells: list[str], line: str) -> NpuProcess:
    try:
        npu_id, chip_id = cells[0].split()
        return NpuProcess(int(npu_id), int(chip_id), int(cells[1]), cells[2], int(cells[3]))
    except (ValueError, IndexError) as error:
        raise AscendOutputError(f"npu-smi info has a process of unknown form: {line[:200]}") from error


def parse_npu_smi_usages(text: str) -> tuple[NpuUsage, ...]:
    return tuple(
        NpuUsage(
            npu_id=npu_id,
            chip_id=chip_id,
            aicore_percent=_number(fields.get("Aicore Usage Rate(%)")),
            aicpu_percent=_number(fields.get("Aicpu Usage Rate(%)")),
            ctrlcpu_percent=_number(fields.get("Ctrlcpu Usage Rate(%)")),
            # "DDR" in drivers before 24, "Memory" in some later ones.
            memory_capacity_mb=_whole(fields.get("DDR Capacity(MB)", fields.get("Memory Capacity(MB)"))),
            memory_percent=_number(fields.get("DDR Usage Rate(%)", fields.get("Memory Usage Rate(%)"))),
            hbm_capacity_mb=_whole(fields.get("HBM Capacity(MB)")),
            hbm_percent=_number(fields.get("HBM Usage Rate(%)")),
            hbm_bandwidth_percent=_number(fields.get("HBM Bandwidth Usage Rate(%)")),
        )
        for npu_id, chip_id, fields in _blocks(text, "usages")
    )


def parse_npu_smi_power(text: str) -> tuple[NpuPower, ...]:
    return tuple(
        NpuPower(
            npu_id,
            chip_id,
            _number(fields.get("NPU Real-time Power(W)", fields.get("Power Dissipation(W)"))),
        )
        for npu_id, chip_id, fields in _blocks(text, "power")
    )


def _blocks(text: str, what: str) -> Iterator[tuple[int, int, dict[str, str]]]:
    """The fields of each chip. `Chip ID` ends a chip's block, or opens it (as in `-t common`)."""
    npu_id: int | None = None
    opened: int | None = None
    fields: dict[str, str] = {}
    empty = True
    for key, value in _pairs(text):
        if key == "NPU ID":
            npu_id = _whole(value)
        elif key == "Chip ID" and npu_id is not None:
            empty = False
            if fields and opened is None:
                yield npu_id, int(value), fields
            else:
                if opened is not None:
                    yield npu_id, opened, fields
                opened = int(value)
            fields = {}
        elif key not in ("Chip Count", "Chip Name"):
            fields[key] = value
    if opened is not None and npu_id is not None:
        yield npu_id, opened, fields
    if empty:
        said = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        raise AscendOutputError(
            f"npu-smi info -t {what} lists no chip: {said[:200]}", "check `npu-smi info -l`"
        )


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
