"""Engine `local`: virtual nodes on this machine, without a daemon.

`prepare` plans and leases ports and devices; `launch` leaves one driver process,
which starts an agent for each node and records the end.
"""

from __future__ import annotations

import contextlib
import os
import secrets as random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed import devices as machine
from trainshed import files
from trainshed.agent import sandbox
from trainshed.devices import cpu
from trainshed.engines.base import (
    DEFAULT_PRIORITY,
    Check,
    Context,
    Engine,
    Prepared,
    Request,
    check_options,
    resolve_secrets,
    store_access,
)
from trainshed.engines.cluster import containers, guard, leases
from trainshed.engines.cluster.leases import DevicePool, Lease
from trainshed.engines.cluster.nodes import (
    HOMES,
    PAYLOAD,
    cache_folder,
    named_paths,
    personal_home,
    python_of,
    visible,
    writable,
)
from trainshed.engines.local import leftovers
from trainshed.engines.local.task import Task
from trainshed.errors import RefusedError, TrainshedError, UsageError
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.plural import counted
from trainshed.runs.directory import RunDirectory
from trainshed.runs.summary import EngineStatus, is_alive, started_at
from trainshed.spec.kinds import DeviceKind

_OPTIONS = {
    "isolation": "sandbox, plain, or auto (sandbox where it works)",
    "expose": "folders of this machine that the job may read, separated by commas",
}
_SERVER = 8
"""Devices of one emulated server: their numbers begin at 0 on each."""
_EMULATED = 64
"""Emulated devices of this machine, unless TRAINSHED_EMULATED_DEVICES says otherwise."""
_STARTING = 60.0
"""Seconds for a frozen driver that has no guard yet to go on."""
_NO_QUEUE = "priority and preemptible have no effect: this engine starts a job at once or refuses it"


class LocalEngine(Engine):
    """Nodes made of processes on this machine."""

    name = "local"

    def __init__(self) -> None:
        self._drivers: list[subprocess.Popen[bytes]] = []
        """Processes that were started here; they are reaped when they have ended."""

    def prepare(self, request: Request, runs: Sequence[RunDirectory]) -> Prepared:
        if len(runs) != 1:
            raise UsageError("one submission makes one run on this engine", "submit the job several times")
        run = runs[0]
        isolation = self._isolation(request)
        store, keys = store_access(request)
        values = keys | resolve_secrets(request)
        lease = Lease()
        try:
            devices = self._devices(request, run.id, lease)
            hosts = leases.take_ports(devices, lease)
            planned = self._plan(request, hosts, run, isolation, store, tuple(sorted(keys)))
        except BaseException:
            lease.close()
            raise
        return Prepared(request, planned, isolation=isolation, private=(lease, values), release=lease.close)

    def launch(self, prepared: Prepared, runs: Sequence[RunDirectory], locks: Sequence[int]) -> None:
        self._reap()
        (run,) = runs
        lease, values = prepared.private
        job, context, cache = prepared.request.job, prepared.request.context, cache_folder(run.home)
        task = Task(
            secret=random.token_hex(32),
            secrets=values,
            attached=prepared.request.attached,
            attempts=job.retries + 1,
            isolation=prepared.isolation,
            scratch=str(_scratch(run)),
            cache=str(cache),
            visible=tuple(_visible(prepared.request, run)),
            writable=tuple(writable(job, run, cache)),
        )
        (alive,) = locks
        with (run.path / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "trainshed.engines.local.driver", str(run.path), str(alive)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[alive, *lease.filenos()],
                start_new_session=True,
                env=context.process_variables(),
            )
        self._drivers.append(driver)
        assert driver.stdin is not None
        # Until it has been given its task the driver has no guard: a reader must know whom to look at.
        os.pwrite(alive, str(driver.pid).encode(), 0)
        try:
            files.write_within(driver.stdin.fileno(), task.to_line(), _STARTING)
        except OSError as error:
            raise TrainshedError(
                f"the driver of run {run.id} did not take its task: {error.strerror}", "submit again"
            ) from error
        # Held open for an attached run: its end tells the driver that this process is gone.
        if not prepared.request.attached:
            driver.stdin.close()

    def poll(self, runs: Sequence[RunDirectory]) -> dict[str, EngineStatus]:
        self._reap()
        return {run.id: _status(run) for run in runs}

    def clear_up(self, run: RunDirectory, status: EngineStatus) -> None:
        if status.alive:
            _end_frozen(run)
        else:
            leftovers.end(run)

    def stop(self, run: RunDirectory, kill: bool) -> None:
        if not files.is_held(run.alive_path):
            return
        # A driver that has not written its number yet finds the request itself. Killed, it takes its
        # agents with it: they see the end of their connection.
        with contextlib.suppress(ValueError, OSError):
            pid, *watched = _above(run)
            if kill and guard.is_frozen(pid):
                os.kill(pid, signal.SIGKILL)
            elif watched:
                os.kill(pid, signal.SIGTERM)

    def forget(self, run: RunDirectory) -> None:
        shutil.rmtree(_scratch(run), ignore_errors=True)

    def describe(self, context: Context, settings: Mapping[str, Any] | None = None) -> list[Check]:
        why_not = sandbox.why_not()
        remedy = f"until then {sandbox.WITHOUT}" if why_not else ""
        found = [Check("isolation", not why_not, why_not or "bubblewrap works", remedy)]
        for kind in DeviceKind:
            seen = machine.find(kind)
            cpus = kind is DeviceKind.CPU
            size = _slots(context) if cpus else len(seen.devices)
            count = str(size) + (f": {seen.reason}" if seen.reason else "")
            found.append(Check(f"{kind.value} devices", size > 0, count, required=cpus))
        tool = containers.tool()
        remedy = "" if tool else "apt-get install podman, for jobs with an image"
        found.append(Check("containers", tool is not None, tool or "neither podman nor docker", remedy))
        return found

    def _reap(self) -> None:
        self._drivers = [driver for driver in self._drivers if driver.poll() is None]

    def _devices(self, request: Request, holder: str, lease: Lease) -> list[tuple[Device, ...]]:
        """Each node's devices, leased, or a refusal that says what there is."""
        wanted = request.job.resources
        if request.emulated:
            size = _count(request.context, "TRAINSHED_EMULATED_DEVICES", _EMULATED)
            pool = DevicePool(f"emulated-{wanted.kind.value}", size, _SERVER)
            known = {index: Device(index % _SERVER) for index in range(size)}
            reason = "TRAINSHED_EMULATED_DEVICES says how many are emulated"
        elif wanted.kind is DeviceKind.CPU:
            size = _slots(request.context)
            pool, known, reason = (
                DevicePool("cpu", size, max(1, size)),
                {},
                "TRAINSHED_CPU_SLOTS says how many",
            )
        else:
            found = machine.find(wanted.kind)
            known = {device.index: device for device in found.devices}
            pool = DevicePool(wanted.kind.value, len(known), max(1, len(known)))
            reason = found.reason
        total = wanted.nodes * wanted.devices
        if total > pool.size:
            what = f"resources: {wanted.shape} asks for {counted(total, f'{wanted.kind.value} device')}"
            available = f"this machine has {pool.size}" + (f" ({reason})" if reason else "")
            hint = "ask for fewer, or use a cluster engine"
            if wanted.kind is DeviceKind.ASCEND and not pool.size:
                hint = (
                    "run it on a machine with NPUs, or add --emulate to run it on the CPU, marked as emulated"
                )
            raise RefusedError(f"{what}, and {available}", hint)
        chosen = leases.take_devices(pool, wanted.nodes, wanted.devices, holder, lease)
        if wanted.kind is DeviceKind.CPU:
            # Slots are only counted: a rank's CPU has no number of its own.
            return [tuple(Device(index) for index in range(wanted.devices))] * wanted.nodes
        return [tuple(known[number] for number in numbers) for numbers in chosen]

    def _plan(
        self,
        request: Request,
        hosts: Sequence[Host],
        run: RunDirectory,
        isolation: str,
        store: dict[str, str],
        keys: tuple[str, ...],
    ) -> Plan:
        job, context = request.job, request.context
        site = Site(
            python=python_of(job, context.environ),
            search_path=context.search_path,
            scratch=str(_scratch(run)),
            library=str(PAYLOAD),
            isolated=isolation != "plain",
            cpus=max(1, (os.cpu_count() or 1) // job.resources.nodes),
            user=context.user,
            team=context.team,
            uid=os.getuid(),
            gid=os.getgid(),
            emulate=request.emulated,
            store=store,
            keys=keys,
            homes=str(context.home / HOMES),
        )
        planned = plan(job, Topology.of(job.resources.kind, hosts), site, run.id)
        notes = list(planned.notes)
        if isolation == "plain":
            why = sandbox.why_not() or "as requested"
            notes.append(f"no isolation ({why}): {sandbox.WITHOUT}")
        elif isolation == "sandbox" and (
            named := sandbox.shown(
                named_paths(job, context.home, personal_home(context.environ)), planned.nodes[0]
            )
        ):
            notes.append(f"visible read-only, because the job names them: {', '.join(named)}")
        if job.preemptible or job.priority != DEFAULT_PRIORITY:
            notes.append(_NO_QUEUE)
        return replace(planned, notes=tuple(notes))

    def _isolation(self, request: Request) -> str:
        wanted = check_options(request.options, _OPTIONS).get("isolation", "auto")
        if wanted not in ("auto", "sandbox", "plain"):
            raise UsageError(f"option isolation={wanted!r}", f"choose {_OPTIONS['isolation']}")
        if request.job.image:
            if containers.tool() is None:
                raise RefusedError(
                    f"image {request.job.image!r} needs podman or docker", "apt-get install podman"
                )
            return "container"
        why_not = sandbox.why_not() if wanted != "plain" else ""
        if wanted == "sandbox" and why_not:
            raise RefusedError(f"option isolation=sandbox: {why_not}", "install it, or use isolation=plain")
        return "plain" if wanted == "plain" or why_not else "sandbox"


def capacity(context: Context, kind: DeviceKind, emulated: bool) -> tuple[int, int]:
    """How many devices of a kind this machine has, and how many of them are free, by their leases."""
    if emulated:
        name, size = f"emulated-{kind.value}", _count(context, "TRAINSHED_EMULATED_DEVICES", _EMULATED)
    elif kind is DeviceKind.CPU:
        name, size = kind.value, _slots(context)
    else:
        name, size = kind.value, len(machine.find(kind).devices)
    return size, size - sum(number < size for number in leases.holders(name))


def _above(run: RunDirectory) -> list[int]:
    """The numbers of the driver and of its guard, as soon as they have written them."""
    with contextlib.suppress(ValueError, OSError):
        return [int(text) for text in files.read_regular(run.alive_path, 1 << 10).split()]
    return []


def _end_frozen(run: RunDirectory) -> None:
    """Take the place of a guard that is gone, or has not begun: nobody else would end a frozen driver.

    One whose agents have started ranks is left alone while they live: they end by themselves.
    """
    above = _above(run)
    if not above or guard.wake(above[-1]) or not guard.is_frozen(above[0]):
        return
    with contextlib.suppress(OSError):
        young = time.time() - run.launched_at() < _STARTING
        begun = started_at(run.events("coordinator-")) is not None
        alone = not any(files.is_held(run.node(index) / "alive.lock") for index in run.node_indexes())
        ready = alone and len(above) == 2
        # Before ranks run, an agent may wait for the driver's first message forever.
        if (ready or (not begun and not young)) and files.is_held(run.alive_path):
            os.kill(above[0], signal.SIGKILL)


def _status(run: RunDirectory) -> EngineStatus:
    try:
        return EngineStatus(alive=is_alive(run))
    except OSError as error:  # a lock that cannot be read (another user's) says nothing of its holder
        return EngineStatus(problem=f"{error.filename}: {error.strerror}")


def _slots(context: Context) -> int:
    return _count(context, "TRAINSHED_CPU_SLOTS", cpu.slots())


def _count(context: Context, name: str, default: int) -> int:
    """A number of devices from the submitter."""
    text = context.environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise UsageError(f"{name} is {text!r}", "write a number")
    return int(text)


def _visible(request: Request, run: RunDirectory) -> list[str]:
    exposed = []
    for text in filter(None, request.options.get("expose", "").split(",")):
        path = Path(text)
        if not path.is_absolute() or not path.exists() or run.home.is_relative_to(path):
            raise UsageError(
                f"option expose={text!r}: not a folder that can be shown",
                "write the full path of one that exists and does not hold Trainshed's home",
            )
        exposed.append(str(path))
    return [*visible(request.job, run.home, request.context.environ), *exposed]


def _scratch(run: RunDirectory) -> Path:
    return run.home / "scratch" / run.id


ENGINE = LocalEngine()
