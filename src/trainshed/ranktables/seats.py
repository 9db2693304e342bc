"""What can be wrong between the devices of a table: ranks, devices and addresses that collide."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainshed.ranktables.findings import Finding, Severity, ranges

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_NUMERIC = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


@dataclass(frozen=True, slots=True)
class Seat:
    """One device as the file has it; what could not be read is None."""

    server_id: str | None
    device_id: int | None
    device_ip: str | None
    rank: int | None
    path: str
    rank_path: str

    @property
    def name(self) -> str:
        return f"{self.server_id or '?'}/device {'?' if self.device_id is None else self.device_id}"


def check_seats(seats: Sequence[Seat], *, has_ranks: bool) -> list[Finding]:
    found: list[Finding] = []
    if not seats:
        found.append(
            Finding(Severity.ERROR, "$", "the table has no device", "list the devices of every server")
        )
    if has_ranks:
        found += _ranks(seats)
    found += _devices(seats)
    found += _addresses(seats)
    found += _servers(seats)
    return found


def _ranks(seats: Sequence[Seat]) -> list[Finding]:
    found = []
    first: dict[int, Seat] = {}
    for seat in seats:
        if seat.rank is not None and first.setdefault(seat.rank, seat) is not seat:
            found.append(
                Finding(
                    Severity.ERROR,
                    seat.rank_path,
                    f"rank {seat.rank} is given to {first[seat.rank].name} and to {seat.name}",
                    "give every device a unique rank",
                )
            )
    size = len(seats)
    missing = [rank for rank in range(size) if rank not in first]
    beyond = sorted(rank for rank in first if rank >= size)
    if missing or beyond:
        extra = f"; ranks {ranges(beyond)} are too high" if beyond else ""
        what = f"{size} devices need ranks 0 to {size - 1}: {ranges(missing) or 'none'} missing{extra}"
        found.append(Finding(Severity.ERROR, "$", what, "number the ranks from 0 without gaps"))
    return found


def _devices(seats: Sequence[Seat]) -> list[Finding]:
    found = []
    first: dict[tuple[str, int], Seat] = {}
    for seat in seats:
        if seat.server_id is None or seat.device_id is None:
            continue
        other = first.setdefault((seat.server_id, seat.device_id), seat)
        if other is not seat:
            found.append(
                Finding(
                    Severity.ERROR,
                    f"{seat.path}.device_id",
                    f"{seat.name} is used twice, first at {other.path}",
                    "list every device of a server once",
                )
            )
    return found


def _addresses(seats: Sequence[Seat]) -> list[Finding]:
    found = []
    first: dict[str, Seat] = {}
    without = []
    for seat in seats:
        if not seat.device_ip:
            without.append(seat)
            continue
        where = f"{seat.path}.device_ip"
        if not _is_ip(seat.device_ip):
            what = f'"{seat.device_ip}" is not an IP address'
            remedy = "take the address from `hccn_tool -i N -ip -g` or /etc/hccn.conf"
            found.append(Finding(Severity.ERROR, where, what, remedy))
        elif first.setdefault(seat.device_ip, seat) is not seat:
            what = f"{seat.device_ip} belongs to {first[seat.device_ip].name} and to {seat.name}"
            found.append(Finding(Severity.ERROR, where, what, "give every device a unique address"))
    if without and len({seat.server_id for seat in seats}) > 1:
        what = f"{len(without)} of {len(seats)} devices have no device_ip, first {without[0].name}"
        remedy = "devices of several servers reach each other through it: add it"
        found.append(Finding(Severity.WARNING, f"{without[0].path}.device_ip", what, remedy))
    return found


def _servers(seats: Sequence[Seat]) -> list[Finding]:
    found = []
    seen: set[str] = set()
    for seat in seats:
        if seat.server_id is None or seat.server_id in seen:
            continue
        seen.add(seat.server_id)
        if not is_address(seat.server_id):
            what = f'server_id "{seat.server_id}" is not an address'
            found.append(
                Finding(Severity.ERROR, seat.path, what, "write the server's IP address or host name")
            )
    return found


def is_address(text: str) -> bool:
    """An IP address or a host name; digits and dots that are not an IP address are neither."""
    return _is_ip(text) if _NUMERIC.fullmatch(text) else bool(_HOST_NAME.fullmatch(text))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
