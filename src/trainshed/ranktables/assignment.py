"""Checks what a launch script does: which rank it starts on which device.

A script may hold a correct table and still number its processes wrongly, for
instance `RANK_ID=$i` on every server. Given what every process was started
with, this says which ranks collide, which are unused and how to count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainshed.ranktables.findings import Finding, Severity, ranges
from trainshed.ranktables.model import RankTable

Assignment = tuple[str, int, int]
"""server_id, DEVICE_ID, RANK_ID of one started process."""


def check_assignment(table: RankTable, assignments: Iterable[Assignment], rank_size: int) -> list[Finding]:
    """Faults of the processes a script starts, compared with one another and with the table."""
    processes = list(assignments)
    expected = {(server.server_id, device.device_id): device.rank for server, device in table.seats()}
    found = _size(table, rank_size)
    claims: dict[int, list[int]] = {}
    for i, (_, _, rank) in enumerate(processes):
        claims.setdefault(rank, []).append(i)
    remedy = _remedy(table)
    for rank, claimants in sorted(claims.items()):
        if len(claimants) > 1:
            names = [_device_name(processes[i]) for i in claimants]
            shown = (
                " and ".join(names)
                if len(names) < 4
                else f"{' and '.join(names[:3])} and {len(names) - 3} more"
            )
            what = f"rank {rank} is claimed by {shown}"
            found.append(Finding(Severity.ERROR, f"assignments[{claimants[1]}]", what, remedy))
    found += _wrong_devices(
        processes, expected, {rank for rank, who in claims.items() if len(who) > 1}, remedy
    )
    idle = [rank for rank in range(rank_size) if rank not in claims]
    if idle:
        what = (
            f"no process has rank {ranges(idle)} of {rank_size}: the others wait for it until they time out"
        )
        found.append(Finding(Severity.ERROR, "assignments", what, remedy))
    beyond = sorted(rank for rank in claims if rank >= rank_size or rank < 0)
    if beyond:
        what = f"rank {ranges(beyond)} is not in 0 to {rank_size - 1} (RANK_SIZE={rank_size})"
        found.append(Finding(Severity.ERROR, f"assignments[{claims[beyond[0]][0]}]", what, remedy))
    return found


def _size(table: RankTable, rank_size: int) -> list[Finding]:
    if rank_size == table.rank_size:
        return []
    what = f"RANK_SIZE is {rank_size}, but the table has {table.rank_size} devices"
    return [Finding(Severity.ERROR, "RANK_SIZE", what, f"use RANK_SIZE={table.rank_size}")]


def _wrong_devices(
    processes: Sequence[Assignment],
    expected: dict[tuple[str, int], int],
    collided: set[int],
    remedy: str,
) -> list[Finding]:
    found = []
    first: dict[tuple[str, int], int] = {}
    for i, (server, device, rank) in enumerate(processes):
        where = f"assignments[{i}]"
        name = _device_name(processes[i])
        wanted = expected.get((server, device))
        if wanted is None:
            what = f"{name} is not in the table"
            hint = "correct DEVICE_ID or the server's address, or add the device to the table"
            found.append(Finding(Severity.ERROR, where, what, hint))
        elif first.setdefault((server, device), i) != i:
            what = f"{name} runs two processes, the other is assignments[{first[server, device]}]"
            found.append(Finding(Severity.ERROR, where, what, "start one process per device"))
        elif rank != wanted and rank not in collided:
            what = f"{name} runs as rank {rank}, but the table gives it rank {wanted}"
            found.append(Finding(Severity.ERROR, where, what, remedy))
    return found


def _device_name(process: Assignment) -> str:
    return f"{process[0]}/device {process[1]}"


def _remedy(table: RankTable) -> str:
    """The formula of a regular table (server k, device i: k*n+i); else the table itself."""
    servers = table.by_server()
    width = len(servers[0].devices)
    regular = all(
        len(server.devices) == width
        and all(d.device_id == i and d.rank == k * width + i for i, d in enumerate(server.devices))
        for k, server in enumerate(servers)
    )
    if not regular:
        return "give every process the rank the table gives its device"
    return f"use RANK_ID=SERVER_INDEX*{width}+i"
