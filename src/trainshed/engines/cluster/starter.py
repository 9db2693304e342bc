"""The starter: what a cluster's own launcher runs on every node. It finds the facts, then starts the agent.

It stays as the agent's parent: it holds the node's ports for as long as the
agent lives, passes on what the driver and signals say, ends an agent that hangs,
and clears the node's scratch folder. It decides nothing that a rank sees.

`starter RUN INDEX NAME CPUS`: the last three name the variables in which the
launcher gives the node's number, its name, and how many processors are the task's.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import logging
import os
import secrets
import shutil
import signal
import socket
import struct
import sys
from dataclasses import replace
from pathlib import Path

from trainshed import devices as machine
from trainshed import files
from trainshed.agent import homes, sandbox
from trainshed.engines.cluster import containers, leases
from trainshed.engines.cluster.child import AgentProcess
from trainshed.engines.cluster.order import Facts, Order, Question
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, node_from_json
from trainshed.plan.topology import Device
from trainshed.plural import counted
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Note
from trainshed.spec.kinds import DeviceKind

_ORDER_LIMIT = 600.0
"""Seconds a starter waits for its order: the slowest node of a large allocation may take long."""
_log = logging.getLogger(__name__)
_SIOCGIFADDR = 0x8915


def command(run: Path, index: str, name: str, cpus: str) -> list[str]:
    """The starter's command line, the same for all nodes; the three name variables."""
    return [sys.executable, "-m", "trainshed.engines.cluster.starter", str(run), index, name, cpus]


def hosted(run: RunDirectory, node: int | str) -> RunDirectory:
    """Where a node has its part of a run that is in an object store, given the driver's: which is node 0's too."""
    return RunDirectory(run.path.parent.with_name(f"carried-{node}") / run.id)


def make_private_folder(path: Path) -> Path:
    """A folder on this node's own disk that no other user can have created."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.stat().st_uid != os.getuid():
        raise TrainshedError(f"{path} belongs to another user", "ask its owner, or set the profile's scratch")
    return path


def main() -> int:
    run = RunDirectory(Path(sys.argv[1]))
    number, name, cpus = (os.environ.get(variable, "") for variable in sys.argv[2:5])
    question = files.read_line(0, _ORDER_LIMIT)
    if not question:
        return 3  # the driver is gone, or has given up
    index, name = int(number), name or socket.gethostname()
    try:
        facts, lease = _facts(index, name, int(cpus or os.cpu_count() or 1), Question.from_line(question))
    except Exception as error:  # whatever is wrong with this node is reported to the driver
        facts, lease = Facts(index, name, "", 0, (), 0, problem=f"{type(error).__name__}: {error}"), None
    sys.stdout.write(facts.to_line())
    sys.stdout.flush()
    line = files.read_line(0, _ORDER_LIMIT)
    if not line:
        return 3
    try:
        order = Order.from_line(line)
        return _work_in_object_store(run, index, order) if order.place else _work(run, index, order)
    except TrainshedError as error:
        _log.error("node %d (%s): %s", index, name, error)
        return 1
    finally:
        if lease:
            lease.close()


def _work_in_object_store(run: RunDirectory, index: int, order: Order) -> int:
    """The node's part of a run that is in an object store: fetched, worked on, uploaded again."""
    url = order.place["url"]
    if index == 0:
        return _work(run, index, order)  # the driver uploads it
    # Loaded only where it is needed: a thousand starters may run at once.
    from trainshed.access import StoreAccess
    from trainshed.runs.store_sync import StoreSync

    local = hosted(run, index)
    make_private_folder(local.path.parent.parent)
    make_private_folder(local.path)
    access = StoreAccess.from_environment(order.place, local.home).credentials(url.partition(":")[0])
    sync = StoreSync(local, url, access, index)
    sync.fetch(
        lambda name: name == "plan.json" or name.startswith((f"node-{index}/", f"events/node-{index}-"))
    )
    sync.start()
    writable = tuple(str(local.path) if path == str(run.path) else path for path in order.writable)
    try:
        code = _work(local, index, replace(order, writable=writable))
        sync.finish()
    except (TrainshedError, OSError) as error:
        _log.error("node %d: its part of the run was not uploaded to %s: %s", index, url, error)
        _log.error("node %d: its files are in %s", index, local.path)
        return 1
    shutil.rmtree(local.path, ignore_errors=True)
    return code


def _work(run: RunDirectory, index: int, order: Order) -> int:
    """The agent, from its start to the clearing of its scratch folder."""
    node = node_from_json(run.plan_json()["nodes"][index])
    try:
        return _agent(run, node, order)
    finally:
        if order.isolation == "plain":
            homes.take(node)
        if run.is_unsaved(index):
            where = f"{Path(order.scratch) / f'node-{index}'} of {node.name}"
            run.writer(f"node-{index}-0").append(Note(f"outputs that could not be saved are in {where}"))
        else:
            shutil.rmtree(Path(order.scratch) / f"node-{index}", ignore_errors=True)
            with contextlib.suppress(OSError):
                Path(order.scratch).rmdir()


def _facts(index: int, name: str, cpus: int, question: Question) -> tuple[Facts, leases.Lease]:
    kind = DeviceKind(question.kind)
    found = _devices(index, question, kind)
    address = _address(index, question)
    fixed = None if ipaddress.ip_address(address).is_loopback else address
    # Nodes that share one machine get their own loopback addresses, as virtual nodes do.
    # Ports that no earlier attempt had, so that nothing left of it reaches this one: from a random start.
    lease = leases.Lease()
    (host,) = leases.take_ports([found], lease, fixed, secrets.randbelow(1 << 16))
    devices = tuple((device.index, device.address) for device in found)
    return Facts(index, name, host.address, host.first_port, devices, cpus, sandbox.why_not()), lease


def _devices(index: int, question: Question, kind: DeviceKind) -> tuple[Device, ...]:
    """The devices the cluster gave: by the variable it sets on the node, else by its own record."""
    if kind is DeviceKind.CPU:
        return tuple(Device(number) for number in range(question.devices))
    numbers: list[int] = []
    for variable in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"):
        listed = os.environ.get(variable, "").split(",")
        if not numbers and all(item.isdigit() for item in listed):
            numbers = [int(item) for item in listed]
    if not numbers and index < len(question.indexes):
        numbers = list(question.indexes[index])
    if len(numbers) < question.devices:
        raise RuntimeError(
            f"the cluster gave {counted(len(numbers), f'{kind.value} device')} here, the job asks for {question.devices}"
        )
    addresses = {device.index: device.address for device in machine.find(kind).devices}
    return tuple(Device(number, addresses.get(number)) for number in numbers[: question.devices])


def _address(index: int, question: Question) -> str:
    if question.interface:
        return _interface_address(question.interface)
    address = question.addresses[index]
    others = [other for other in question.addresses if not ipaddress.ip_address(other).is_loopback]
    if ipaddress.ip_address(address).is_loopback and others:
        # A host that calls itself 127.0.1.1: what it uses to reach the others is how they reach it.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((others[0], 9))
            return str(probe.getsockname()[0])
    return address


def _interface_address(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            interfaces = ", ".join(item for _, item in socket.if_nameindex())
            raise RuntimeError(
                f"interface {name!r} has no IPv4 address here ({error.strerror}); interfaces: {interfaces}"
            ) from error
    return socket.inet_ntoa(answer[20:24])


def _agent(run: RunDirectory, node: NodePlan, order: Order) -> int:
    """Start the agent, enclosed where that works, and wait for it."""
    scratch = Path(order.scratch) / f"node-{node.index}"
    make_private_folder(scratch.parent.parent)
    make_private_folder(scratch)
    (scratch.parent.parent / "cache").mkdir(exist_ok=True)
    if order.isolation == "container":
        homes.prepare(node, scratch)
    agent = AgentProcess(run, node, order, scratch)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: agent.signal(number))
    code = agent.wait()
    if order.isolation == "container":
        containers.remove(containers.label_of(run.id, node.index))
    return code


if __name__ == "__main__":
    sys.exit(main())
