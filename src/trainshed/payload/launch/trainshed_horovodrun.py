"""Stands before `horovodrun` on a node's PATH: fixes what a virtual node lacks, says so, and starts it.

- A network interface that the node does not have (ib0) becomes the one that has the node's address.
  Without any, the same one is named: looking for one would find none on loopback addresses.
- Variables in which nodes differ, and secrets, are not passed to other nodes: each has its own there.

Of the standard library and Horovod alone: it is run by the job's own Python.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Sequence

_INTERFACES = ("--network-interface", "--network-interfaces")
_HOSTS = ("-H", "--hosts", "-hostfile", "--hostfile")
_SIOCGIFADDR = 0x8915


def interface_of(address: str) -> str:
    """The interface with an address of this node; empty when none is found."""
    if address.startswith("127."):
        # All of 127/8 is the loopback's, though it lists only one address.
        return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "")
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24]
            except OSError:
                continue
            if socket.inet_ntoa(found) == address:
                return name
    return ""


def translate(
    arguments: Sequence[str], present: Sequence[str], interface: str
) -> tuple[list[str], list[str]]:
    """Arguments for the real horovodrun, and messages about them. `interface`: the interface to use."""
    options, command = split(arguments)
    result: list[str] = []
    said: list[str] = []
    named = False
    items = iter(options)
    for item in items:
        option, equals, value = item.partition("=")
        if option not in _INTERFACES:
            result.append(item)
            continue
        named = True
        wanted = [name for name in (value if equals else next(items, "")).split(",") if name]
        missing = ",".join(name for name in wanted if name not in present)
        kept = [name for name in wanted if name in present]
        if missing and interface and interface not in kept:
            kept.append(interface)
        used = ",".join(kept or wanted)
        if missing:
            said.append(f"{option} {missing}: this node has no such interface; using {used}")
        result += [option, used]
    if names_hosts(options) and not named and interface:
        result[:0] = ["--network-interfaces", interface]
        said.append(f"--network-interfaces {interface} added: that one has the nodes' addresses")
    return [*result, *command], said


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """horovodrun's own options, and the command it is to start: the first argument that is not an option's value."""
    for i, item in enumerate(arguments):
        before = arguments[i - 1] if i else ""
        if not item.startswith("-") and (not before.startswith("-") or "=" in before):
            return list(arguments[:i]), list(arguments[i:])
    return list(arguments), []


def names_hosts(options: Sequence[str]) -> bool:
    return any(item.partition("=")[0] in _HOSTS for item in options)


def keep_node_variables(names: Sequence[str]) -> None:
    """horovodrun puts its whole environment on the command lines of remote ranks: all but these.

    A rank on another node has its own of them, since it is started through that node's sshd.
    """
    from horovod.runner.common.util import env  # type: ignore[import-not-found,unused-ignore]

    env.IGNORE_REGEXES.update(f"{name}$" for name in names)


def main() -> None:
    try:
        from horovod.runner.launch import run_commandline  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        sys.exit("trainshed: horovodrun is not installed in this job's environment; name one that has it")
    present = [name for _, name in socket.if_nameindex()]
    interface = interface_of(os.environ.get("TRAINSHED_NODE_ADDRESS", ""))
    arguments, said = translate(sys.argv[1:], present, interface)
    for line in said:
        print(f"trainshed: horovodrun {line}", file=sys.stderr, flush=True)
    keep_node_variables([name for name in os.environ.get("TRAINSHED_NODE_VARIABLES", "").split(",") if name])
    sys.argv = ["horovodrun", *arguments]
    run_commandline()


if __name__ == "__main__":
    main()
