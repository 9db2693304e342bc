"""The starter: what srun runs on every node of an allocation. It finds the facts, then starts the agent.

It stays as the agent's parent: it holds the node's ports for as long as the
agent lives, passes signals on, and clears the node's scratch folder. It
decides nothing that a rank sees.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from trainshed.agent import devices as machine
from trainshed.agent import sandbox
from trainshed.engines import _containers as containers
from trainshed.engines import _leases as leases
from trainshed.engines.slurm import carried
from trainshed.engines.slurm.order import Facts, Order, Question
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, node_from_json
from trainshed.plan.topology import Device
from trainshed.runs import events
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.spec.kinds import DeviceKind

_ORDER_LIMIT = 600.0
"""Seconds a starter waits for its order: the slowest node of a large allocation may take long."""
_SIOCGIFADDR = 0x8915
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    run = RunDirectory(Path(sys.argv[1]))
    asked = _read_line(_ORDER_LIMIT)
    if not asked:
        return 3  # the driver is gone, or has given up
    question = Question.from_line(asked)
    index = int(os.environ["SLURM_NODEID"])
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    try:
        facts, lease = _facts(index, name, question)
    except Exception as error:  # whatever is wrong with this node is told to the driver, in its words
        facts, lease = Facts(index, name, "", 0, (), 0, problem=f"{type(error).__name__}: {error}"), None
    sys.stdout.write(facts.to_line())
    sys.stdout.flush()
    line = _read_line(_ORDER_LIMIT)
    if not line:
        return 3
    order = Order.from_line(line)
    try:
        if order.carried:
            return _carried(run, index, order)
        return _work(run, index, order)
    finally:
        if lease:
            lease.close()


def _carried(run: RunDirectory, index: int, order: Order) -> int:
    """The node's part of a run that lies in an object store: fetched, worked on, carried back."""
    url = order.carried["url"]
    if index == 0:
        return _work(run, index, order)  # the driver carries it
    here = carried.hosted(run, index)
    carried.own_folder(here.path.parent.parent)
    carried.own_folder(here.path)
    carrier = carried.Carrier(here, url, carried.access_of(url, order.carried), index)
    carrier.fetch(lambda name: name == "plan.json" or name.startswith(f"node-{index}/"))
    carrier.start()
    writable = tuple(str(here.path) if path == str(run.path) else path for path in order.writable)
    try:
        code = _work(here, index, replace(order, writable=writable))
        carrier.finish()
    except (TrainshedError, OSError) as error:
        print(f"node {index}: its part of the run was not carried to {url}: {error}", file=sys.stderr)
        print(f"node {index}: it lies in {here.path}", file=sys.stderr, flush=True)
        return 1
    shutil.rmtree(here.path, ignore_errors=True)
    return code


def _work(run: RunDirectory, index: int, order: Order) -> int:
    """The agent, from its start to the clearing of its scratch folder."""
    node = node_from_json(run.plan_json()["nodes"][index])
    try:
        return _agent(run, node, order)
    finally:
        if run.is_unsaved(index):
            where = f"{Path(order.scratch) / f'node-{index}'} of {node.name}"
            events.append(
                run.node_events_path(index), Kind.NOTE, text=f"outputs that could not be saved lie in {where}"
            )
        else:
            shutil.rmtree(Path(order.scratch) / f"node-{index}", ignore_errors=True)
            with contextlib.suppress(OSError):
                Path(order.scratch).rmdir()


def _facts(index: int, name: str, question: Question) -> tuple[Facts, leases.Lease]:
    kind = DeviceKind(question.kind)
    found = _devices(index, question, kind)
    address = _address(index, question)
    own = None if ipaddress.ip_address(address).is_loopback else address
    # Nodes that share one machine get loopback addresses of their own, as virtual nodes do.
    # Ports that no earlier attempt had, so that nobody left of it finds this one: from any place on.
    lease = leases.take(DeviceKind.CPU, 1, [found], own, secrets.randbelow(1 << 16))
    host = lease.hosts[0]
    devices = tuple((device.index, device.address) for device in found)
    cpus = int(os.environ.get("SLURM_CPUS_PER_TASK") or os.cpu_count() or 1)
    return Facts(index, name, host.address, host.first_port, devices, cpus, sandbox.why_not()), lease


def _devices(index: int, question: Question, kind: DeviceKind) -> tuple[Device, ...]:
    """The devices Slurm gave: by the variable it sets on the node, else by its record, else counted."""
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
            f"Slurm gave {len(numbers)} {kind.value} devices here, the job asks for {question.devices}"
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
            there = ", ".join(item for _, item in socket.if_nameindex())
            raise RuntimeError(
                f"interface {name!r} has no IPv4 address here ({error.strerror}); there are {there}"
            ) from None
    return socket.inet_ntoa(answer[20:24])


def _agent(run: RunDirectory, node: NodePlan, order: Order) -> int:
    """Start the agent, enclosed where that works, and wait for it."""
    scratch = Path(order.scratch) / f"node-{node.index}"
    carried.own_folder(scratch.parent.parent)
    carried.own_folder(scratch)
    (scratch.parent.parent / "cache").mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "trainshed.agent.main", "--run", str(run.path), "--node", str(node.index)]
    with open(os.devnull, "wb") as nowhere:
        hosts = scratch / "hosts"
        hosts.write_text(order.hosts)
        if order.isolation == "sandbox":
            shown = sandbox.Enclosure(hosts, scratch, order.visible, order.writable)
            argv = sandbox.enclose(node, shown, argv, nowhere.fileno())
            argv.insert(1, "--die-with-parent")
        run.node(node.index).mkdir(exist_ok=True)
        with (run.node(node.index) / "agent.log").open("ab") as log:
            # A session of its own: Slurm signals process groups, and bubblewrap would not survive that.
            process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                pass_fds=(nowhere.fileno(),),
                start_new_session=True,
                preexec_fn=_prepare,
            )

    def pass_on(number: int, _frame: object) -> None:
        # bubblewrap passes no signal on to what it encloses, which is its only child.
        pid: int | None = process.pid
        if order.isolation == "sandbox":
            pid = _first_child(pid)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    code = process.wait()
    if order.isolation == "container":
        containers.remove(containers.label_of(run.id, node.index))
    return code if code >= 0 else 128 - code


def _first_child(pid: int | None) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    except (OSError, IndexError):
        return None


def _read_line(limit: float) -> bytes:
    """One line of standard input, read no further than its end: the rest is the agent's."""
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([0], [], [], limit)[0]:
            return b""
        piece = os.read(0, 1)
        if not piece:
            return b""
        line += piece
    return line


def _prepare() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Slurm may signal every process of a step. bubblewrap, killed, would take its node with it at once;
    # the agent sets handlers of its own, and its ranks start with the usual ones.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
