"""Host files of OpenMPI and Horovod, and the node info files of ais-bench."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainshed.ranktables.fields import as_integer, as_object, as_optional_text, as_text
from trainshed.ranktables.model import RankTable, RankTableError

_SLOTS = re.compile(r"slots\s*=\s*([0-9]{1,9})", re.ASCII)
_OTHER = re.compile(r"max[-_]slots\s*=\s*[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostSlots:
    """A host and how many processes it takes."""

    host: str
    slots: int


def read_hostfile(text: str) -> tuple[HostSlots, ...]:
    """Lines `host slots=n`; a bare host has one slot; slots of a host named again add up (as in OpenMPI)."""
    slots: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split("#", 1)[0].split(None, 1)
        if not fields:
            continue
        rest = _OTHER.sub("", fields[1]).strip() if len(fields) == 2 else "slots=1"
        found = _SLOTS.fullmatch(rest)
        if found is None:
            raise RankTableError(
                f"line {number} of the host file is {line.strip()!r}", "write `host slots=8`"
            )
        slots[fields[0]] = slots.get(fields[0], 0) + int(found[1])
    return tuple(HostSlots(host, n) for host, n in slots.items())


def write_hostfile(hosts: Iterable[HostSlots]) -> str:
    return "".join(f"{entry.host} slots={entry.slots}\n" for entry in hosts)


def read_hosts_argument(text: str) -> tuple[HostSlots, ...]:
    """The `-H h1:8,h2:8` of horovodrun; a host without a number has one slot."""
    hosts = []
    for part in text.split(","):
        host, colon, number = part.strip().rpartition(":")
        if not colon:
            host, number = number, "1"
        if not host or not (number.isascii() and number.isdigit()) or len(number) > 9:
            raise RankTableError(f"{part.strip()!r} in the list of hosts {text!r}", "write h1:8,h2:8")
        hosts.append(HostSlots(host, int(number)))
    return tuple(hosts)


def hosts_of(table: RankTable) -> tuple[HostSlots, ...]:
    return tuple(HostSlots(server.server_id, len(server.devices)) for server in table.by_server())


@dataclass(frozen=True, slots=True)
class SshServer:
    """How ais-bench reaches a server. Version 1.0 has a password, 2.0 a work path."""

    address: str
    user: str
    port: int = 22
    password: str | None = field(default=None, repr=False)
    work_path: str | None = None


def read_node_info(text: str) -> tuple[SshServer, ...]:
    """Version 1.0 `{"cluster": {ip: {user, pd, port}}}` or 2.0 `{"0": {ip, user, port, work_path}}`."""
    try:
        document = as_object(json.loads(text), "$")
    except ValueError as error:
        raise RankTableError(f"the node info is not JSON: {error}", "correct the file") from error
    if "cluster" in document:
        nodes = []
        for address, value in as_object(document["cluster"], "$.cluster").items():
            path = f"$.cluster.{address}"
            record = as_object(value, path)
            port = as_integer(record, "port", path) if "port" in record else 22
            password = as_optional_text(record, "pd", path)
            nodes.append(SshServer(address, as_text(record, "user", path), port, password))
        return tuple(nodes)
    numbered = []
    for key, value in document.items():
        if not (key.isascii() and key.isdigit()):
            raise RankTableError(
                f'the node info has the key "{key}"', 'use "cluster" (1.0) or "0", "1", ... (2.0)'
            )
        path = f"$.{key}"
        record = as_object(value, path)
        node = SshServer(
            as_text(record, "ip", path),
            as_text(record, "user", path),
            as_integer(record, "port", path) if "port" in record else 22,
            work_path=as_optional_text(record, "work_path", path),
        )
        numbered.append((int(key), node))
    return tuple(node for _, node in sorted(numbered, key=lambda pair: pair[0]))


def write_node_info_1(nodes: Sequence[SshServer]) -> str:
    """Version 1.0 holds passwords in plain text: write it only where no one else can read it."""
    cluster = {
        node.address: {"user": node.user, "pd": node.password or "", "port": node.port} for node in nodes
    }
    return json.dumps({"cluster": cluster}, indent=4, ensure_ascii=False) + "\n"


def write_node_info_2(nodes: Sequence[SshServer]) -> str:
    document = {
        str(i): {
            "ip": node.address,
            "user": node.user,
            "port": node.port,
            "work_path": node.work_path or "",
        }
        for i, node in enumerate(nodes)
    }
    return json.dumps(document, indent=4, ensure_ascii=False) + "\n"
