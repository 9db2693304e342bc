"""What a run holds on one machine for as long as it lives: ports, addresses, devices.

A lease is a bound socket: the kernel gives each to one holder only, whoever
that is, and takes it back when the holder dies. No file can be left behind.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainshed.errors import RefusedError
from trainshed.plan.topology import Device, Host, ports_needed
from trainshed.spec.kinds import DeviceKind

_FIRST_PORT = 10240
_BLOCK = 32
_BLOCKS = 700
_FIRST_ADDRESS = (127 << 24) + (64 << 16)


@dataclass
class Lease:
    """Bound sockets, and the hosts they stand for. Closing it frees everything."""

    hosts: tuple[Host, ...]
    sockets: list[socket.socket]

    def close(self) -> None:
        for item in self.sockets:
            item.close()


def layout(block: int, nodes: int, devices: Sequence[Sequence[Device]]) -> tuple[Host, ...]:
    """The hosts of a run that holds the blocks from `block` on."""
    each = ports_needed(max(len(d) for d in devices))
    first = _FIRST_PORT + block * _BLOCK + 1
    return tuple(
        Host(f"worker-{i}", _address(block, i), tuple(devices[i]), first + i * each) for i in range(nodes)
    )


def take(
    kind: DeviceKind,
    nodes: int,
    devices: Sequence[Sequence[Device]],
    address: str | None = None,
    start: int = 0,
) -> Lease:
    """Ports, addresses and (for accelerators) devices, or a refusal that says what is held.

    With `address` the nodes have that one instead of loopback addresses of their own. Blocks of ports are
    tried from `start` on, round to it again.
    """
    sockets: list[socket.socket] = []
    if kind is not DeviceKind.CPU:
        sockets += _devices(kind, devices)
    each = ports_needed(max(len(d) for d in devices))
    blocks = -(-(nodes * each + 1) // _BLOCK)
    for step in range(_BLOCKS):
        block = (start + step) % _BLOCKS
        held = _blocks(block, blocks) if block + blocks <= _BLOCKS else None
        if held is not None:
            hosts = layout(block, nodes, devices)
            if address is not None:
                hosts = tuple(replace(host, address=address) for host in hosts)
            if all(_is_free(host, each) for host in hosts):
                return Lease(hosts, sockets + held)
            for item in held:
                item.close()
    Lease((), sockets).close()
    raise RefusedError(
        f"no {blocks * _BLOCK} ports in a row are free on this machine", "wait for other runs to end"
    )


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


def _devices(kind: DeviceKind, devices: Sequence[Sequence[Device]]) -> list[socket.socket]:
    held: list[socket.socket] = []
    for device in (item for group in devices for item in group):
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0trainshed-{kind.value}-{device.index}")
        except OSError:
            for item in (*held, mark):
                item.close()
            raise RefusedError(
                f"{kind.value} device {device.index} is in use by another run",
                "`trainshed ps` shows what runs",
            ) from None
        held.append(mark)
    return held


def _address(block: int, index: int) -> str:
    number = _FIRST_ADDRESS + (block << 8) + 1 + index
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
