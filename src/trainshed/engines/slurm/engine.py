"""Engine `slurm`: submits, asks, stops. Slurm queues, places and isolates; the driver runs in the job."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from trainshed.engines import _driving as driving
from trainshed.engines.base import (
    Check,
    Engine,
    Preview,
    Request,
    Status,
    as_options,
    naming,
    resolve_secrets,
    store_access,
)
from trainshed.engines.slurm import carried, doctor, handed, remote, script
from trainshed.engines.slurm.client import Slurm, SlurmError
from trainshed.engines.slurm.profile import OPTIONS, Settings, settings
from trainshed.engines.slurm.states import REQUEUED, Entry, failure_of, parse_fields, state_of, waiting_words
from trainshed.errors import RefusedError, TrainshedError, UsageError
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.runs.directory import RunDirectory, Runs, home
from trainshed.runs.events import Kind
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import RunState
from trainshed.runs.summary import summarise
from trainshed.spec.load import dump_job
from trainshed.store.errors import StoreError

_FRESH = 2.0
"""Seconds for which an answer of squeue serves all runs: many readers must not burden the controller."""
_SILENT = 60.0
"""Seconds without a word after which a run that Slurm does not know is taken for dead."""
_SUBMITTING = 120.0
"""Seconds for which a run without a job's number is taken to be on its way to Slurm."""
_AT_ONCE = 4
"""Submissions side by side: most of each is spent waiting for the controller, which must not be flooded."""
_NOTE = "names, addresses, ports and devices shown here are placeholders: they come from the allocation"


class SlurmEngine(Engine):
    """Nodes of a Slurm cluster."""

    name = "slurm"

    def __init__(self) -> None:
        self._asked = float("-inf")
        self._entries: list[Entry] = []

    def preview(self, request: Request) -> Preview:
        chosen = self._settings(request)
        name = f"{request.job.name}-preview"
        runs = _paths(_place(chosen, name), chosen.array or 1)
        text = script.render(request.job, chosen, runs, _home(chosen), "", request.emulated)
        return Preview(_preview_plan(request, chosen, name), text)

    def submit(self, request: Request) -> RunDirectory:
        return self._submit(request, self._settings(request))[0]

    def submit_many(self, request: Request, count: int) -> list[RunDirectory]:
        """`count` runs of the same job as one array."""
        chosen = self._settings(request)
        return self._submit(request, chosen.model_copy(update={"array": count}))

    def submit_each(self, requests: Sequence[Request]) -> Iterator[RunDirectory]:
        refused: list[TrainshedError] = []

        def one(request: Request) -> RunDirectory | None:
            if refused:
                return None
            try:
                with naming(request):
                    return self.submit(request)
            except TrainshedError as error:
                refused.append(error)
                return None

        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            yield from filter(None, pool.map(one, requests))
        finally:
            pool.shutdown(cancel_futures=True)
        if refused:
            raise refused[0]

    def status(self, run: RunDirectory) -> Status:
        if remote.is_mirror(run):
            return remote.status(run)
        try:
            if carried.is_carried(run):
                carried.pull(run)
            entry = self._entry(run)
            if entry is None:
                entry = self._entry(run, fresh=True)
            if entry is not None and not entry.state.is_over:
                words = waiting_words(entry) if entry.state.is_waiting else ""
                if words:
                    _requeued(run, entry.job)
                return Status(alive=True, waiting=words)
            job = entry.job if entry else _recorded(run)
            if not job and _is_young(run):
                return Status(alive=True, waiting="it is being submitted")
            state = entry.state.value if entry else ""
            if job:
                state = Slurm(_conf(run)).accounted(job) or state
        except (SlurmError, StoreError) as error:
            # Not to be reached is not the same as gone.
            return Status(alive=True, waiting=f"its state is not known now: {error.message}")
        if state and not state_of(state).is_over:
            return Status(alive=True)
        if not state and _writes(run):
            return Status(
                alive=True, waiting="Slurm does not know the job any more, but its nodes still work"
            )
        _close(run, state, entry.reason if entry else "")
        return Status(alive=False)

    def stop(self, run: RunDirectory, reason: str) -> None:
        if remote.is_mirror(run):
            remote.stop(run, reason)
            return
        again = bool(driving.stop_reason(run))
        if carried.is_carried(run):
            carried.ask_to_stop(run, reason)
        run.append(Kind.STOP_REQUESTED, reason=reason)
        entry = self._entry(run, fresh=True)
        if entry is None or entry.state.is_over:
            return
        slurm = Slurm(_conf(run))
        # The driver stops its agents within their grace; not there, or asked before, Slurm ends them.
        gently = not again and not entry.state.is_waiting
        if not (gently and slurm.cancel(entry.job, "--signal=TERM", "--batch")):
            slurm.cancel(entry.job)
        self._asked = float("-inf")

    def describe(self) -> list[Check]:
        chosen = settings({})
        return remote.describe(chosen) if chosen.profile.login else doctor.checks(chosen)

    def forget(self, run: RunDirectory) -> None:
        if remote.is_mirror(run):
            remote.forget(run)
            return
        if carried.is_carried(run):
            carried.forget(run)
        handed.forget(run)

    def submit_here(self, request: Request, chosen: Settings, values: dict[str, str]) -> list[RunDirectory]:
        """Make the run directories and hand the job to Slurm; refused, nothing is left behind."""
        dependency = self._dependency(chosen.dependency)
        store, keys = store_access(request.job, chosen.profile.runs or "")
        values = keys | values
        url = chosen.profile.runs
        runs = _create(request.job.name, chosen.array or 1)
        try:
            brought = carried.hand(values, url) if url else {}
            submission = handed.Submission(
                settings=chosen, emulate=request.emulated, user=getpass.getuser(), store=store
            )
            text = dump_job(request.job)
            for run in runs:
                if url:
                    text = dump_job(carried.begin(run, f"{url}/{run.id}", request.job))
                self._write(run, request, submission, text, {} if url else values, runs)
                if url:
                    carried.publish(run)
            paths = [_place(chosen, run.id) for run in runs]
            asked = script.render(request.job, chosen, paths, _home(chosen), dependency, request.emulated)
            job = Slurm(chosen.profile.slurm_conf).submit(asked, brought)
        except BaseException:
            for run in runs:
                # What went wrong first is what must be told.
                with contextlib.suppress(TrainshedError, OSError):
                    self.forget(run)
                shutil.rmtree(run.path, ignore_errors=True)
            raise
        for index, run in enumerate(runs):
            run.append(Kind.NOTE, slurm_job=job if len(runs) == 1 else f"{job}_{index}")
        return runs

    def _submit(self, request: Request, chosen: Settings) -> list[RunDirectory]:
        values = resolve_secrets(request.job)
        if chosen.profile.login:
            return remote.submit(request, chosen, values)
        return self.submit_here(request, chosen, values)

    def _settings(self, request: Request) -> Settings:
        chosen = settings(as_options(request.options, OPTIONS))
        if request.attached and chosen.array:
            raise UsageError("option array: a run in the foreground is one run", "use `trainshed submit`")
        if request.job.image and not chosen.profile.container:
            raise RefusedError(
                f"image {request.job.image!r}: how this cluster runs containers is not known",
                "say so with -o container=podman, apptainer, pyxis or enroot, or in the site's profile",
            )
        return chosen

    def _write(
        self,
        run: RunDirectory,
        request: Request,
        submission: handed.Submission,
        job: str,
        values: dict[str, str],
        runs: list[RunDirectory],
    ) -> None:
        run.write("job.yaml", job)
        if values:
            handed.keep(run, values)
        run.append(
            Kind.SUBMITTED,
            submission=submission.model_dump(mode="json", exclude_defaults=True),
            name=request.job.name,
            engine=self.name,
            shape=request.job.resources.shape,
            launcher=request.job.launcher,
            contract=request.job.contract,
            emulated=request.emulated,
            array=[other.id for other in runs] if len(runs) > 1 else [],
        )

    def _dependency(self, text: str | None) -> str:
        """Run ids as Slurm's own form; that form itself is passed as it is."""
        if not text or ":" in text:
            return text or ""
        jobs = []
        for name in text.split(","):
            run = Runs.default().find(name.strip())
            job = _recorded(run)
            if not job:
                raise UsageError(
                    f"option dependency: run {run.id} is no Slurm job", "name a run of this engine"
                )
            jobs.append(job)
        return "afterok:" + ":".join(jobs)

    def _entry(self, run: RunDirectory, fresh: bool = False) -> Entry | None:
        if fresh or time.monotonic() - self._asked > _FRESH:
            self._entries = Slurm(_conf(run)).jobs()
            self._asked = time.monotonic()
        base, _, index = run.id.rpartition(".")
        for entry in reversed(self._entries):
            if entry.task is None and entry.comment == f"trainshed:{run.id}":
                return entry
            if entry.task is not None and entry.comment == f"trainshed:{base}" and str(entry.task) == index:
                return entry
        return None


def _writes(run: RunDirectory) -> bool:
    """Whether agents have lately written: a controller that lost its memory does not end a run."""
    stamps = [path.stat().st_mtime for path in run.path.glob("node-*/metrics.jsonl")]
    return bool(stamps) and time.time() - max(stamps) < _SILENT


def _is_young(run: RunDirectory) -> bool:
    """Whether whoever submits the run may still be waiting for Slurm's answer."""
    first = next(run.events(), None)
    return first is not None and time.time() - first.time < _SUBMITTING


def _requeued(run: RunDirectory, job: str) -> None:
    """A job that ran and waits again was put back by Slurm: said here if its driver died with its host.

    What squeue said may be older than the attempt, so Slurm's count of restarts decides.
    """
    told = [e for e in run.events() if e.kind in (Kind.ATTEMPT, Kind.PENDING, Kind.FINISHED)]
    if not told or told[-1].kind is not Kind.ATTEMPT:
        return
    record = parse_fields(Slurm(_conf(run)).record(job))
    waits = state_of(record.get("JobState", "")).is_waiting
    if waits and int(record.get("Restarts") or 0) >= told[-1].data["attempt"]:
        run.append(Kind.PENDING, reason=REQUEUED)
        _published(run)


def _close(run: RunDirectory, state: str, reason: str) -> None:
    """Slurm says that the job is over and its driver recorded no end: record it with Slurm's reason."""
    if not state or any(event.kind is Kind.FINISHED for event in run.events()):
        return
    asked, told = driving.stop_reason(run), summarise(run, alive=False).outcome
    # Agents that Slurm itself signals say that they were stopped; why, only Slurm knows.
    if told is None or told.state is RunState.LOST or (told.state is RunState.STOPPED and not asked):
        told = Outcome.of(failure_of(state, asked, reason))
    handed.forget(run)
    driving.record_end(run, told)
    _published(run)


def _published(run: RunDirectory) -> None:
    """No driver lives that would carry what was just recorded here."""
    if carried.is_carried(run):
        carried.publish(run)


def _recorded(run: RunDirectory) -> str:
    """The job's number, by the submission or by the driver."""
    jobs = [event.data["slurm_job"] for event in run.events() if event.data.get("slurm_job")]
    return str(jobs[0]) if jobs else ""


def _conf(run: RunDirectory) -> str | None:
    return handed.read(run).settings.profile.slurm_conf


def _home(chosen: Settings) -> script.Home:
    from trainshed.environments import environments_directory

    profile = chosen.profile
    return script.Home(
        python=profile.python or sys.executable,
        folder=profile.home or str(script.own_disk(profile.scratch) / "home" if profile.runs else home()),
        environments=profile.environments or str(environments_directory()),
        runs=profile.runs or "",
    )


def _place(chosen: Settings, name: str) -> str:
    """Where the driver of a run of that name has its run directory."""
    if chosen.profile.runs:
        return str(script.own_disk(chosen.profile.scratch) / "carried-0" / name)
    return str(home() / "runs" / name)


def _create(name: str, count: int) -> list[RunDirectory]:
    first = Runs.default().create(name)
    if count == 1:
        return [first]
    paths = [RunDirectory(first.path.with_name(path)) for path in _paths(first.id, count)]
    first.path.rename(paths[0].path)
    for run in paths[1:]:
        run.path.mkdir()
    return paths


def _paths(base: str, count: int) -> list[str]:
    return [base] if count == 1 else [f"{base}.{index}" for index in range(count)]


def _preview_plan(request: Request, chosen: Settings, name: str) -> Plan:
    """The plan on placeholder hosts, from a range of addresses that belongs to nobody."""
    wanted = request.job.resources
    own = tuple(Device(index) for index in range(wanted.devices))
    hosts = [
        Host(f"slurm-node-{i}", f"198.{18 + (i >> 16)}.{i >> 8 & 255}.{i & 255}", own, 10241)
        for i in range(wanted.nodes)
    ]
    site = Site(
        python="python" if chosen.profile.login else driving.python_of(request.job),
        search_path=os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
        scratch=str(script.own_disk(chosen.profile.scratch) / name),
        library=str(driving.LIBRARY),
        isolated=chosen.profile.isolation != "plain",
        cpus=wanted.devices * chosen.profile.cpus_per_device,
        user=getpass.getuser(),
        emulate=request.emulated,
    )
    job = request.job.model_copy(update={"env": chosen.profile.env | request.job.env})
    planned = plan(job, Topology.of(wanted.kind, hosts), site, name)
    return replace(planned, notes=(*planned.notes, _NOTE))


ENGINE = SlurmEngine()
