"""Checks a rank table as it stands in its file, and explains every fault.

Works on the JSON document rather than on the model, because the model cannot
hold what is wrong. One pass over the document collects faults of form and the
seats (device, address, rank); one pass over the seats finds what collides.
Linear in the size of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainshed.ranktables.fields import Json, integer_of, kind
from trainshed.ranktables.findings import Finding, Severity
from trainshed.ranktables.forms import Form, detect, parse
from trainshed.ranktables.model import COMPLETED, STATUSES, RankTableError
from trainshed.ranktables.seats import Seat, check_seats


@dataclass(frozen=True, slots=True)
class _Level:
    """The keys one level of a form has; `numbers` are those that hold a number in a string."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()


def _level(required: str, optional: str = "", numbers: str = "") -> _Level:
    return _Level(frozenset(required.split()), frozenset(optional.split()), frozenset(numbers.split()))


_V1_TABLE = _level("version server_count server_list status", numbers="server_count")
_V1_SERVER = _level("server_id device", "host_nic_ip")
_V1_DEVICE = _level("device_id rank_id", "device_ip", numbers="device_id rank_id")
_PODS_TABLE = _level("status group_count group_list", numbers="group_count")
_PODS_GROUP = _level(
    "group_name device_count instance_count instance_list", numbers="device_count instance_count"
)
_PODS_POD = _level("pod_name server_id devices")
_DEVICE = _level("device_id", "device_ip", numbers="device_id")
_DEVICES_TABLE = _level(
    "status group_count group_list para_plane_nic_location para_plane_nic_name para_plane_nic_num",
    "board_id chip_info deploy_mode",
    numbers="group_count para_plane_nic_num",
)
_DEVICES_GROUP = _level(
    "device_num server_num instance_count instance_list",
    "group_name",
    numbers="device_num server_num instance_count",
)
_DEVICES_INSTANCE = _level("devices rank_id server_id", numbers="rank_id")


@dataclass(slots=True)
class _Pass:
    """What one walk over the document gathers."""

    findings: list[Finding] = field(default_factory=list)
    seats: list[Seat] = field(default_factory=list)

    def error(self, where: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(Severity.ERROR, where, what, remedy))

    def warning(self, where: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(Severity.WARNING, where, what, remedy))

    def record(self, value: object, path: str, level: _Level) -> Json | None:
        """The object at `path` after a look at its keys; None when it is not an object."""
        if not isinstance(value, Mapping):
            self.error(path, f"is {kind(value)}, not an object", "write an object here")
            return None
        keys = value.keys()
        for key in sorted(level.required - keys):
            self.error(f"{path}.{key}", "is missing", f"add {key}")
        for key in sorted(keys - level.required - level.optional):
            self.warning(
                f"{path}.{key}", "is not a key of this form", f"remove {key} or correct its spelling"
            )
        for key in level.numbers:
            if key in value:
                self._number(value[key], f"{path}.{key}")
        return value

    def _number(self, value: object, path: str) -> None:
        number = integer_of(value)
        if number is None:
            self.error(path, f"is {kind(value)}, not a whole number from 0", 'write it as "0", "1", ...')
        elif not isinstance(value, str):
            self.error(path, f"is the number {value}, not a string", f'write "{value}"')

    def items(self, record: Json, key: str, path: str) -> Iterator[tuple[str, object]]:
        value = record.get(key)
        if isinstance(value, list):
            for i, item in enumerate(value):
                yield f"{path}.{key}[{i}]", item
        elif key in record:
            self.error(f"{path}.{key}", f"is {kind(value)}, not a list", "write a list here")

    def text(self, record: Json, key: str, path: str) -> str | None:
        value = record.get(key)
        if isinstance(value, str):
            return value
        if key in record:
            self.error(f"{path}.{key}", f"is {kind(value)}, not a string", f'write "{key}": "..."')
        return None

    def count(self, record: Json, key: str, path: str, actual: int, of_what: str) -> None:
        said = integer_of(record.get(key))
        if said is not None and said != actual:
            self.error(f"{path}.{key}", f"says {said}, but there are {actual} {of_what}", f'write "{actual}"')

    def seat(self, fields: Json, path: str, server_id: str | None, rank: int | None, rank_path: str) -> None:
        ip = self.text(fields, "device_ip", path)
        self.seats.append(Seat(server_id, integer_of(fields.get("device_id")), ip, rank, path, rank_path))


def check_text(text: str) -> list[Finding]:
    """Faults of a rank table given as text; text that is not a rank table is one finding."""
    try:
        return check(parse(text))
    except RankTableError as error:
        return [Finding(Severity.ERROR, "$", error.message, error.hint)]


def check(document: Json) -> list[Finding]:
    """Faults of a rank table of any form, in document order, then those between devices."""
    try:
        form = detect(document)
    except RankTableError as error:
        return [Finding(Severity.ERROR, "$", error.message, error.hint)]
    walk = _Pass()
    match form:
        case Form.V1:
            _walk_v1(walk, document)
        case Form.PODS:
            _walk_pods(walk, document)
        case Form.DEVICES:
            _walk_devices(walk, document)
    _check_status(walk, document)
    return walk.findings + check_seats(walk.seats, has_ranks=form is not Form.PODS)


def _check_status(walk: _Pass, document: Json) -> None:
    status = document.get("status", COMPLETED)
    if status == COMPLETED:
        return
    if status in STATUSES:
        walk.error("$.status", f'is "{status}"', "wait until the platform has completed the table")
    else:
        walk.error("$.status", f"is {kind(status)}", f'write "{COMPLETED}"')


def _walk_v1(walk: _Pass, document: Json) -> None:
    walk.record(document, "$", _V1_TABLE)
    version = document.get("version", "1.0")
    if version != "1.0":
        walk.warning("$.version", f"is {kind(version)}", 'only "1.0" is known to work with a server list')
    first: dict[str, str] = {}
    servers = 0
    for path, item in walk.items(document, "server_list", "$"):
        servers += 1
        server = walk.record(item, path, _V1_SERVER)
        if server is None:
            continue
        name = walk.text(server, "server_id", path)
        walk.text(server, "host_nic_ip", path)
        if name is not None and first.setdefault(name, path) != path:
            walk.error(
                f"{path}.server_id",
                f"{name} is also {first[name]}",
                "list each server once, all devices in it",
            )
        devices = 0
        for where, entry in walk.items(server, "device", path):
            devices += 1
            fields = walk.record(entry, where, _V1_DEVICE)
            if fields is not None:
                walk.seat(fields, where, name, integer_of(fields.get("rank_id")), f"{where}.rank_id")
        if not devices and "device" in server:
            walk.error(f"{path}.device", "has no device", "remove the server or list its devices")
    walk.count(document, "server_count", "$", servers, "servers in server_list")


def _walk_pods(walk: _Pass, document: Json) -> None:
    walk.record(document, "$", _PODS_TABLE)
    first: dict[str, str] = {}
    groups = 0
    for path, item in walk.items(document, "group_list", "$"):
        groups += 1
        group = walk.record(item, path, _PODS_GROUP)
        if group is None:
            continue
        walk.text(group, "group_name", path)
        pods = devices = 0
        for where, entry in walk.items(group, "instance_list", path):
            pods += 1
            pod = walk.record(entry, where, _PODS_POD)
            if pod is None:
                continue
            name = walk.text(pod, "pod_name", where)
            if name is not None and first.setdefault(name, where) != where:
                walk.error(
                    f"{where}.pod_name", f"{name} is also {first[name]}", "give every pod a unique name"
                )
            server = walk.text(pod, "server_id", where)
            for spot, device in walk.items(pod, "devices", where):
                devices += 1
                fields = walk.record(device, spot, _DEVICE)
                if fields is not None:
                    walk.seat(fields, spot, server, None, spot)
        walk.count(group, "instance_count", path, pods, "pods in instance_list")
        walk.count(group, "device_count", path, devices, "devices in the group")
    walk.count(document, "group_count", "$", groups, "groups in group_list")


def _walk_devices(walk: _Pass, document: Json) -> None:
    walk.record(document, "$", _DEVICES_TABLE)
    groups = 0
    for path, item in walk.items(document, "group_list", "$"):
        groups += 1
        group = walk.record(item, path, _DEVICES_GROUP)
        if group is None:
            continue
        instances = devices = 0
        servers: set[str] = set()
        for where, entry in walk.items(group, "instance_list", path):
            instances += 1
            instance = walk.record(entry, where, _DEVICES_INSTANCE)
            if instance is None:
                continue
            server = walk.text(instance, "server_id", where)
            servers.update([server] if server is not None else [])
            rank = integer_of(instance.get("rank_id"))
            count = 0
            for spot, device in walk.items(instance, "devices", where):
                count += 1
                fields = walk.record(device, spot, _DEVICE)
                if fields is not None:
                    walk.seat(fields, spot, server, rank if count == 1 else None, f"{where}.rank_id")
            if count != 1 and "devices" in instance:
                walk.error(
                    f"{where}.devices",
                    f"has {count} devices for one rank_id",
                    "write one instance per device",
                )
            devices += count
        walk.count(group, "instance_count", path, instances, "instances in instance_list")
        walk.count(group, "device_num", path, devices, "devices in the group")
        walk.count(group, "server_num", path, len(servers), "servers in the group")
    walk.count(document, "group_count", "$", groups, "groups in group_list")
    interfaces = sum(1 for _ in walk.items(document, "para_plane_nic_name", "$"))
    walk.count(document, "para_plane_nic_num", "$", interfaces, "names in para_plane_nic_name")
