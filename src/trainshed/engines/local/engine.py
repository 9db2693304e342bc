"""Engine `local`: virtual nodes on this machine, without a daemon.

`submit` plans, leases ports and devices, and leaves one driver process, which
starts an agent for each node and records the end.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets as random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainshed.agent import devices as machine
from trainshed.agent import sandbox
from trainshed.engines import _containers as containers
from trainshed.engines import _leases as leases
from trainshed.engines._driving import LIBRARY, cache_folder, python_of, visible, writable
from trainshed.engines.base import (
    Check,
    Engine,
    Preview,
    Request,
    Status,
    as_options,
    resolve_secrets,
    store_access,
)
from trainshed.errors import RefusedError, UsageError
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.runs import locks
from trainshed.runs.directory import RunDirectory, Runs, home
from trainshed.runs.events import Kind
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.load import dump_job

_OPTIONS = {"isolation": "sandbox, plain, or auto (sandbox where it works)"}


class LocalEngine(Engine):
    """Nodes made of processes on this machine."""

    name = "local"

    def preview(self, request: Request) -> Preview:
        hosts = leases.layout(0, request.job.resources.nodes, self._devices(request))
        return Preview(self._plan(request, hosts, f"{request.job.name}-preview"))

    def submit(self, request: Request) -> RunDirectory:
        devices = self._devices(request)
        store, keys = store_access(request.job)
        values = keys | resolve_secrets(request.job)
        lease = leases.take(_leased_kind(request), request.job.resources.nodes, devices)
        run = None
        try:
            run = Runs.default().create(request.job.name)
            self._write(run, request, self._plan(request, lease.hosts, run.id, store, keys))
            self._drive(run, request, values, lease)
        except BaseException:
            if run is not None:
                shutil.rmtree(run.path, ignore_errors=True)
            raise
        finally:
            lease.close()
        return run

    def status(self, run: RunDirectory) -> Status:
        return Status()

    def stop(self, run: RunDirectory, reason: str) -> None:
        run.append(Kind.STOP_REQUESTED, reason=reason)
        if locks.is_held(run.alive_path):
            # A driver that has not written its number yet finds the request by itself.
            with contextlib.suppress(ValueError, ProcessLookupError):
                os.kill(int(run.alive_path.read_text()), signal.SIGTERM)

    def forget(self, run: RunDirectory) -> None:
        shutil.rmtree(_scratch(run.id), ignore_errors=True)

    def describe(self) -> list[Check]:
        why_not = sandbox.why_not()
        found = [Check("isolation", not why_not, why_not or "bubblewrap works", _remedy(why_not))]
        for kind in DeviceKind:
            seen = machine.find(kind)
            found.append(Check(f"{kind.value} devices", bool(seen.devices), _count(seen), ""))
        tool = containers.tool()
        remedy = "apt-get install podman, for jobs with an image"
        found.append(
            Check("containers", tool is not None, tool or "neither podman nor docker", "" if tool else remedy)
        )
        return found

    def _devices(self, request: Request) -> Sequence[Sequence[Device]]:
        """Each node's devices, or a refusal that says what there is."""
        wanted = request.job.resources
        kind = _leased_kind(request)
        found = machine.find(kind)
        total = wanted.nodes * wanted.devices
        if total > len(found.devices):
            what = f"resources: {wanted.shape} asks for {total} {wanted.kind.value} devices"
            there = f"this machine has {len(found.devices)}" + (f" ({found.reason})" if found.reason else "")
            hint = "ask for fewer, or use a cluster engine"
            if wanted.kind is DeviceKind.ASCEND and not found.devices:
                hint = (
                    "run it on a machine with NPUs, or add --emulate to run it on the CPU, marked as emulated"
                )
            raise RefusedError(f"{what}, and {there}", hint)
        if kind is DeviceKind.CPU:
            own = tuple(Device(index) for index in range(wanted.devices))
            return [own] * wanted.nodes
        return [found.devices[i * wanted.devices : (i + 1) * wanted.devices] for i in range(wanted.nodes)]

    def _plan(
        self,
        request: Request,
        hosts: Sequence[Host],
        run: str,
        store: Mapping[str, str] | None = None,
        keys: Iterable[str] = (),
    ) -> Plan:
        job = request.job
        site = Site(
            python=python_of(job),
            search_path=os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
            scratch=str(_scratch(run)),
            library=str(LIBRARY),
            isolated=self._isolation(request) != "plain",
            cpus=max(1, (os.cpu_count() or 1) // job.resources.nodes),
            user=getpass.getuser(),
            uid=os.getuid(),
            gid=os.getgid(),
            emulate=request.emulated,
            store=store or {},
            keys=tuple(sorted(keys)),
        )
        planned = plan(job, Topology.of(job.resources.kind, hosts), site, run)
        if not site.isolated:
            why = sandbox.why_not() or "it was asked for"
            planned = replace(planned, notes=(*planned.notes, f"no isolation ({why}): {sandbox.WITHOUT}"))
        return planned

    def _isolation(self, request: Request) -> str:
        wanted = as_options(request.options, _OPTIONS).get("isolation", "auto")
        if request.job.image:
            if containers.tool() is None:
                raise RefusedError(
                    f"image {request.job.image!r} needs podman or docker", "apt-get install podman"
                )
            return "container"
        if wanted not in ("auto", "sandbox", "plain"):
            raise UsageError(f"option isolation={wanted!r}", f"choose {_OPTIONS['isolation']}")
        why_not = sandbox.why_not() if wanted != "plain" else ""
        if wanted == "sandbox" and why_not:
            raise RefusedError(f"option isolation=sandbox: {why_not}", "install it, or use isolation=plain")
        return "plain" if wanted == "plain" or why_not else "sandbox"

    def _write(self, run: RunDirectory, request: Request, planned: Plan) -> None:
        run.write("job.yaml", dump_job(request.job))
        run.write("plan.json", json.dumps(planned.to_json()))
        run.append(
            Kind.SUBMITTED,
            name=request.job.name,
            engine=self.name,
            shape=request.job.resources.shape,
            launcher=request.job.launcher,
            contract=request.job.contract,
            emulated=planned.emulated,
            isolation=self._isolation(request),
        )

    def _drive(
        self, run: RunDirectory, request: Request, values: dict[str, str], lease: leases.Lease
    ) -> None:
        alive = locks.hold(run.alive_path)
        assert alive is not None, "a fresh run directory has no other holder"
        held = [alive, *(item.fileno() for item in lease.sockets)]
        task = {
            "secret": random.token_hex(32),
            "secrets": values,
            "attached": request.attached,
            "attempts": request.job.retries + 1,
            "isolation": self._isolation(request),
            "scratch": str(_scratch(run.id)),
            "cache": str(cache_folder()),
            "visible": visible(request.job),
            "writable": writable(request.job, run, cache_folder()),
        }
        try:
            with (run.path / "driver.log").open("ab") as log:
                driver = subprocess.Popen(
                    [sys.executable, "-m", "trainshed.engines.local.driver", str(run.path), str(alive)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=held,
                    start_new_session=True,
                )
            assert driver.stdin is not None
            driver.stdin.write(json.dumps(task).encode() + b"\n")
            driver.stdin.flush()
            if request.attached:
                # Held open on purpose: its end tells the driver that this process is gone.
                _LIFELINES.append(driver)
            else:
                driver.stdin.close()
                driver.returncode = 0  # it is no longer ours to wait for
        finally:
            os.close(alive)


_LIFELINES: list[subprocess.Popen[bytes]] = []


def _leased_kind(request: Request) -> DeviceKind:
    return DeviceKind.CPU if request.emulated else request.job.resources.kind


def _scratch(run: str) -> Path:
    return home() / "scratch" / run


def _remedy(why_not: str) -> str:
    return f"until then {sandbox.WITHOUT}" if why_not else ""


def _count(found: machine.Found) -> str:
    return str(len(found.devices)) + (f": {found.reason}" if found.reason else "")


ENGINE = LocalEngine()
