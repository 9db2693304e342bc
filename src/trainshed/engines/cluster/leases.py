"""What a run holds on one machine for as long as it lives: ports, addresses, devices.

A lease is a bound socket: the kernel gives each to one holder only, whoever
that is, and takes it back when the holder dies. No file can be left behind.
Who holds a device is bound beside it as a second name, which everybody can list.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainshed.errors import RefusedError
from trainshed.plan.topology import Device, Host, ports_needed

_FIRST_PORT = 10240
_BLOCK = 32
_BLOCKS = 700
_FIRST_ADDRESS = (127 << 24) + (64 << 16)
_NAME = "trainshed-device"
_PATIENCE = 10.0
"""Seconds to try for devices that others take at the same moment."""
_LONGEST = 100
"""Bytes of a socket's name that are used; the kernel takes 107."""


@dataclass
class Lease:
    """Bound sockets. Closing it frees everything that no other process has inherited."""

    sockets: list[socket.socket] = field(default_factory=list)

    def filenos(self) -> list[int]:
        return [item.fileno() for item in self.sockets]

    def close(self) -> None:
        for item in self.sockets:
            item.close()
        self.sockets = []


@dataclass(frozen=True)
class DevicePool:
    """Devices of one name on this machine, by number; `group` is how many of them stand on one server."""

    name: str
    size: int
    group: int


def take_devices(
    pool: DevicePool, nodes: int, each: int, holder: str, lease: Lease
) -> tuple[tuple[int, ...], ...]:
    """The numbers of free devices for each node, leased; a refusal names who holds the others.

    Nodes of one run get their own servers as long as there are any.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        held = holders(pool.name)
        chosen = choose(pool, nodes, each, set(held))
        if chosen is None:
            raise _refusal(pool, nodes, each, held)
        if _bind(pool.name, [number for node in chosen for number in node], holder, lease):
            return chosen
        # Another run was faster: what is left is looked at again, after a while that differs for each.
        if time.monotonic() > deadline:
            raise RefusedError(f"{pool.name} devices are being taken by other runs right now", "try again")
        time.sleep(random.uniform(0.0, 0.02))


def choose(pool: DevicePool, nodes: int, each: int, busy: set[int]) -> tuple[tuple[int, ...], ...] | None:
    """Free devices for every node, or None. Pure.

    An empty server comes first: there a node's numbers begin at 0, as scripts for whole servers expect.
    """
    free = {
        start: [n for n in range(start, min(start + pool.group, pool.size)) if n not in busy]
        for start in range(0, pool.size, pool.group)
    }
    used: dict[int, int] = dict.fromkeys(free, 0)
    empty = {start: all(n not in busy for n in range(start, start + pool.group)) for start in free}
    chosen = []
    for _ in range(nodes):
        fitting = [start for start, numbers in free.items() if len(numbers) >= each]
        if not fitting:
            return None
        start = min(fitting, key=lambda item: (used[item], not empty[item], item))
        used[start] += 1
        chosen.append(tuple(free[start][:each]))
        del free[start][:each]
    return tuple(chosen)


def holders(name: str) -> dict[int, str]:
    """Who holds each device of that name, by the sockets of this machine; an unknown holder is ''."""
    found: dict[int, str] = {}
    prefix = f"@{_NAME}-{name}-"
    for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
        _, found_prefix, rest = line.partition(prefix)
        if found_prefix:
            number, _, holder = rest.partition("=")
            if number.isascii() and number.isdigit():
                found[int(number)] = holder or found.get(int(number), "")
    return found


def layout(block: int, devices: Sequence[Sequence[Device]]) -> tuple[Host, ...]:
    """The hosts of a run that holds the blocks from `block` on."""
    each = ports_needed(max(len(d) for d in devices))
    first = _FIRST_PORT + block * _BLOCK + 1
    return tuple(
        Host(f"worker-{i}", _address(block, i), tuple(some), first + i * each)
        for i, some in enumerate(devices)
    )


def take_ports(
    devices: Sequence[Sequence[Device]], lease: Lease, address: str | None = None, start: int = 0
) -> tuple[Host, ...]:
    """Hosts with free ports and addresses for nodes with these devices, leased.

    With `address` the nodes have that one instead of their own loopback addresses. Blocks of ports are
    tried from `start` on, round to it again.
    """
    each = ports_needed(max(len(d) for d in devices))
    blocks = -(-(len(devices) * each + 1) // _BLOCK)
    for step in range(_BLOCKS):
        block = (start + step) % _BLOCKS
        held = _blocks(block, blocks) if block + blocks <= _BLOCKS else None
        if held is not None:
            hosts = layout(block, devices)
            if address is not None:
                hosts = tuple(replace(host, address=address) for host in hosts)
            if all(_is_free(host, each) for host in hosts):
                lease.sockets += held
                return hosts
            for item in held:
                item.close()
    raise RefusedError(
        f"no {blocks * _BLOCK} ports in a row are free on this machine", "wait for other runs to end"
    )


def _refusal(pool: DevicePool, nodes: int, each: int, held: dict[int, str]) -> RefusedError:
    owners: dict[str, list[int]] = {}
    held = {number: holder for number, holder in held.items() if number < pool.size}
    for number, holder in sorted(held.items()):
        owners.setdefault(holder or "an unknown process", []).append(number)
    listed = [f"{holder} holds {_ranges(numbers)}" for holder, numbers in owners.items()]
    shown = "; ".join(listed[:8]) + (f"; and {len(listed) - 8} more runs" if len(listed) > 8 else "")
    count = f"{nodes * each} {pool.name} device{'s' if nodes * each > 1 else ''}"
    return RefusedError(
        f"{count} requested, {pool.size - len(held)} of {pool.size} are free"
        + (f": {shown}" if shown else ""),
        "wait for one of them to end (`trainshed ps`), or ask for fewer",
        code="devices-busy",
    )


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _bind(name: str, numbers: Sequence[int], holder: str, lease: Lease) -> bool:
    """All of them, or none."""
    taken: list[socket.socket] = []
    for number in numbers:
        for text in (f"{_NAME}-{name}-{number}", f"{_NAME}-{name}-{number}={holder}"[:_LONGEST]):
            item = socket.socket(socket.AF_UNIX)
            taken.append(item)
            try:
                item.bind(f"\0{text}")
            except OSError:
                for each in taken:
                    each.close()
                return False
    lease.sockets += taken
    return True


def _blocks(first: int, count: int) -> list[socket.socket] | None:
    held: list[socket.socket] = []
    for block in range(first, first + count):
        item = socket.socket()
        try:
            item.bind(("127.0.0.1", _FIRST_PORT + block * _BLOCK))
        except OSError:
            item.close()
            for other in held:
                other.close()
            return None
        held.append(item)
    return held


def _is_free(host: Host, ports: int) -> bool:
    for port in range(host.first_port, host.first_port + ports):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host.address, port))
            except OSError:
                return False
    return True


def _address(block: int, index: int) -> str:
    number = _FIRST_ADDRESS + (block << 8) + 1 + index
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
