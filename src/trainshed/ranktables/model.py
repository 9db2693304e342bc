"""The neutral rank table: which device of which server has which global rank.

Plain frozen values. It knows no file form (see v1, pods, devices), no
topology, launcher or contract; the planner builds it from numbers and
addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainshed.errors import UsageError

COMPLETED = "completed"
INITIALIZING = "initializing"
STATUSES = (INITIALIZING, COMPLETED)


class RankTableError(UsageError):
    """A rank table cannot be read, built or written as asked."""

    code = "ranktable"


class RankTableNotReadyError(RankTableError):
    """The platform has not filled the table yet: read it again later."""

    code = "ranktable-not-ready"


@dataclass(frozen=True, slots=True)
class TableDevice:
    """One device: its index on the server, its own address (if it has one), its global rank."""

    device_id: int
    device_ip: str | None
    rank: int


@dataclass(frozen=True, slots=True)
class TableServer:
    """The devices a table lists together: a server, or one pod of a server."""

    server_id: str
    devices: Sequence[TableDevice]
    pod_name: str | None = None
    host_nic_ip: str = "reserve"

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))


@dataclass(frozen=True, slots=True)
class RankTable:
    """Servers in the order the table names them. Two pods of one server are two entries here;
    forms without pods join them (`by_server`)."""

    servers: tuple[TableServer, ...]
    status: str = COMPLETED

    @classmethod
    def build(cls, servers: Sequence[TableServer], *, status: str = COMPLETED) -> RankTable:
        """Make a table, or say which rank or device is claimed twice or missing."""
        if status not in STATUSES:
            raise RankTableError(f"status {status!r} of a rank table", f"use one of: {', '.join(STATUSES)}")
        if not any(server.devices for server in servers):
            raise RankTableError(
                "a rank table needs at least one device", "give every server its list of devices"
            )
        ranks: dict[int, str] = {}
        devices: set[tuple[str, int]] = set()
        for server in servers:
            for device in server.devices:
                name = f"{server.server_id}/device {device.device_id}"
                if device.rank in ranks:
                    raise RankTableError(
                        f"rank {device.rank} is given to {ranks[device.rank]} and to {name}",
                        "every device needs a unique rank",
                    )
                ranks[device.rank] = name
                if (server.server_id, device.device_id) in devices:
                    raise RankTableError(f"{name} is listed twice", "list every device of a server once")
                devices.add((server.server_id, device.device_id))
        highest = max(ranks)
        if min(ranks) != 0 or highest != len(ranks) - 1:
            missing = next(rank for rank in range(len(ranks)) if rank not in ranks)
            raise RankTableError(
                f"rank {missing} is missing: {len(ranks)} devices have ranks {min(ranks)} to {highest}",
                f"number the devices 0 to {len(ranks) - 1}",
            )
        return cls(tuple(servers), status)

    @property
    def rank_size(self) -> int:
        return sum(len(server.devices) for server in self.servers)

    @property
    def server_ids(self) -> tuple[str, ...]:
        """Every server once, in the order of first mention."""
        return tuple(dict.fromkeys(server.server_id for server in self.servers))

    def seats(self) -> Iterator[tuple[TableServer, TableDevice]]:
        """Every device with its entry, in table order."""
        for server in self.servers:
            for device in server.devices:
                yield server, device

    def by_server(self) -> tuple[TableServer, ...]:
        """One entry per server: the pods of one server are joined, their ranks stay."""
        joined: dict[str, list[TableServer]] = {}
        for server in self.servers:
            joined.setdefault(server.server_id, []).append(server)
        return tuple(
            parts[0]
            if len(parts) == 1
            else replace(parts[0], devices=[device for part in parts for device in part.devices])
            for parts in joined.values()
        )
