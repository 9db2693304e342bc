"""Engine `slurm`: submits, asks, stops. Slurm queues, places and isolates; the driver runs in the job."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainshed import files
from trainshed.engines.base import (
    Check,
    Context,
    Engine,
    Prepared,
    Request,
    check_options,
    resolve_secrets,
    store_access,
)
from trainshed.engines.cluster.nodes import PAYLOAD, python_of
from trainshed.engines.slurm import doctor, script, submission
from trainshed.engines.slurm.client import Slurm, SlurmError
from trainshed.engines.slurm.environment import process_env
from trainshed.engines.slurm.profile import OPTIONS, SlurmSettings, settings_of
from trainshed.engines.slurm.states import QueueEntry, failure_of, parse_fields, state_of, waiting_reason
from trainshed.engines.slurm.submission import Submission
from trainshed.errors import RefusedError, TrainshedError, UsageError
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.runs import locations
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Accepted, AttemptStarted, Note, Pending, UnreadableRunError
from trainshed.runs.summary import EngineStatus
from trainshed.spec.load import dump_job

_FRESH = 2.0
"""Seconds for which an answer of squeue serves all runs: many readers must not burden the controller."""
_SILENT = 60.0
"""Seconds without a sample after which the nodes of a run that Slurm does not know are taken for dead."""
_SUBMITTING = 120.0
"""Seconds for which a run without a job's number is taken to be on its way to Slurm."""
_PLACEHOLDERS = (
    "names, addresses, ports and devices shown here are placeholders: they come from the allocation"
)


@dataclass(frozen=True)
class _Private:
    """What `launch` needs besides the batch script."""

    settings: SlurmSettings
    submission: Submission
    values: dict[str, str]
    """The job's secrets and the store's keys."""


class SlurmEngine(Engine):
    """Nodes of a Slurm cluster."""

    name = "slurm"
    at_once = 4

    def __init__(self) -> None:
        self._queried: dict[str | None, tuple[float, list[QueueEntry]]] = {}

    def count(self, request: Request) -> int:
        return self._settings(request).array or request.count

    def prepare(self, request: Request, runs: Sequence[RunDirectory]) -> Prepared:
        chosen = self._settings(request)
        if request.attached and len(runs) > 1:
            raise UsageError("option array: a run in the foreground is one run", "use `trainshed submit`")
        values = resolve_secrets(request)
        store: dict[str, str] = {}
        if not chosen.profile.login:
            store, keys = store_access(request, chosen.profile.runs or "")
            values = keys | values
        dependency = self._dependency(chosen.dependency, request.context)
        paths = [_path(chosen, run) for run in runs]
        where = _home(chosen, request.context)
        text = script.render(request.job, chosen, paths, where, dependency, request.emulated)
        left = Submission(settings=chosen, emulate=request.emulated, user=request.context.user, store=store)
        return Prepared(
            request,
            _preview_plan(request, left, tuple(sorted(values)), runs[0].id),
            text=text,
            is_final=False,
            settings=left.model_dump(mode="json", exclude_defaults=True),
            private=_Private(chosen, left, values),
        )

    def launch(self, prepared: Prepared, runs: Sequence[RunDirectory], locks: Sequence[int]) -> None:
        private: _Private = prepared.private
        profile, context = private.settings.profile, prepared.request.context
        if profile.login:
            from trainshed.engines.slurm import remote

            remote.submit(prepared.request, private.settings, private.values, runs)
            return
        for run in runs:
            for text in script.queue_notes(prepared.request.job, private.settings):
                run.writer("submit").append(Note(text))
        brought: dict[str, str] = {}
        if profile.runs:
            from trainshed.runs import store_sync

            brought = submission.bring(private.values, profile.runs, context)
            keys = context.store.keys(profile.runs)
            for run in runs:
                url = f"{profile.runs}/{run.id}"
                run.write("job.yaml", dump_job(store_sync.begin(run, url, prepared.request.job, keys)))
                store_sync.publish_submission(run, url, keys)
        elif private.values:
            for run in runs:
                submission.keep(run, private.values)
        try:
            job = Slurm(profile.slurm_conf).submit(prepared.text, brought)
        except BaseException:
            for run in runs:
                with contextlib.suppress(TrainshedError):  # what went wrong first is what must be told
                    locations.remove(run, context.store)
            raise
        for index, run in enumerate(runs):
            run.writer("submit").append(Accepted(job if len(runs) == 1 else f"{job}_{index}"))
            with contextlib.suppress(TrainshedError):  # the driver says it too, once it has begun
                locations.publish(run, context.store, "submit")

    def poll(self, runs: Sequence[RunDirectory]) -> dict[str, EngineStatus]:
        found: dict[str, EngineStatus] = {}
        by_cluster: dict[str | None, list[RunDirectory]] = {}
        for run in runs:
            try:
                if locations.is_mirror(run) and not locations.location_of(run).url:
                    found[run.id] = EngineStatus()  # its site knows, and is asked when the mirror is fetched
                else:
                    by_cluster.setdefault(_conf(run), []).append(run)
            except UnreadableRunError as error:
                found[run.id] = EngineStatus(problem=error.message)
        for conf, group in by_cluster.items():
            try:
                found |= self._poll_cluster(group, conf)
            except SlurmError as error:
                # Out of reach is not the same as gone.
                found |= {run.id: EngineStatus(problem=error.message) for run in group}
        return found

    def _poll_cluster(self, runs: Sequence[RunDirectory], conf: str | None) -> dict[str, EngineStatus]:
        """One question for all runs, and one more for those that Slurm lists no longer."""
        began, slurm = time.monotonic(), Slurm(conf)
        entries = _by_run(self._entries(conf))
        # One submitted just now may be younger than an answer that was kept.
        if self._queried[conf][0] < began and any(run.id not in entries for run in runs):
            entries = _by_run(self._entries(conf, fresh=True))
        jobs: dict[str, str] = {}
        for run in runs:
            entry = entries.get(run.id)
            if (entry is None or entry.state.is_over) and (job := entry.job if entry else run.reference()):
                jobs[run.id] = job
        accounted = slurm.accounted(list(jobs.values()))
        return {
            run.id: self._status(run, entries.get(run.id), accounted.get(jobs.get(run.id, ""), ""), slurm)
            for run in runs
        }

    def stop(self, run: RunDirectory, kill: bool) -> None:
        if locations.is_mirror(run) and not locations.location_of(run).url:
            return  # the request itself went to the site
        conf = _conf(run)
        entry = _by_run(self._entries(conf, fresh=True)).get(run.id)
        if entry is None or entry.state.is_over:
            return
        slurm = Slurm(conf)
        # The driver stops its agents within their grace; not there, or asked before, Slurm ends them.
        gently = not kill and not entry.state.is_waiting
        if not (gently and slurm.cancel(entry.job, "--signal=TERM", "--batch")):
            slurm.cancel(entry.job)
        self._queried.pop(conf, None)

    def describe(self, context: Context, settings: Mapping[str, Any] | None = None) -> list[Check]:
        chosen = SlurmSettings.model_validate(settings) if settings is not None else settings_of({}, context)
        if chosen.profile.login:
            from trainshed.engines.slurm import remote

            return remote.describe(chosen)
        return doctor.checks(chosen, context)

    def forget(self, run: RunDirectory) -> None:
        submission.forget(run)

    def _settings(self, request: Request) -> SlurmSettings:
        if request.settings is not None:
            chosen = SlurmSettings.model_validate(request.settings)
        else:
            chosen = settings_of(check_options(request.options, OPTIONS), request.context)
        if request.job.image and not chosen.profile.container:
            raise RefusedError(
                f"image {request.job.image!r}: how this cluster runs containers is not known",
                "set -o container=podman, apptainer, pyxis or enroot, or in the site's profile",
            )
        return chosen

    def _dependency(self, text: str | None, context: Context) -> str:
        """Run ids as Slurm's own form; that form itself is passed as it is."""
        if not text or ":" in text:
            return text or ""
        jobs = []
        for name in text.split(","):
            run = Runs.of(context.home).find(name.strip())
            job = run.reference()
            if not job or run.submission().engine != self.name:
                raise UsageError(
                    f"option dependency: run {run.id} is not a Slurm job", "name a run of this engine"
                )
            jobs.append(job)
        return "afterok:" + ":".join(jobs)

    def _entries(self, conf: str | None, fresh: bool = False) -> list[QueueEntry]:
        queried, entries = self._queried.get(conf, (float("-inf"), []))
        if fresh or time.monotonic() - queried > _FRESH:
            entries = Slurm(conf).jobs()
            self._queried[conf] = (time.monotonic(), entries)
        return entries

    def _status(
        self, run: RunDirectory, entry: QueueEntry | None, accounted: str, slurm: Slurm
    ) -> EngineStatus:
        if entry is not None and not entry.state.is_over:
            waiting = waiting_reason(entry) if entry.state.is_waiting else ""
            return EngineStatus(
                waiting=waiting, requeued=bool(waiting) and _is_requeued(run, entry.job, slurm)
            )
        if entry is None and not run.reference() and (files.is_held(run.alive_path) or _is_young(run)):
            return EngineStatus(waiting="it is being submitted")
        state = accounted or (entry.state.value if entry else "")
        if state and not state_of(state).is_over:
            return EngineStatus()
        if not state and _is_sampled(run):
            return EngineStatus(waiting="Slurm no longer knows the job, but its nodes still run it")
        requested = run.stop_reason()
        failure = failure_of(state, requested, entry.reason if entry else "") if state else None
        return EngineStatus(alive=False, failure=failure)


def _by_run(entries: Sequence[QueueEntry]) -> dict[str, QueueEntry]:
    """The jobs by the run each was submitted for; of several, Slurm lists the newest last."""
    found: dict[str, QueueEntry] = {}
    for entry in entries:
        if entry.comment.startswith("trainshed:"):
            name = entry.comment.removeprefix("trainshed:")
            found[name if entry.task is None else f"{name}.{entry.task}"] = entry
    return found


def _is_sampled(run: RunDirectory) -> bool:
    """Whether agents have lately written: a controller that lost its memory does not end a run."""
    stamps = [path.stat().st_mtime for path in run.path.glob("node-*/metrics.jsonl")]
    return bool(stamps) and time.time() - max(stamps) < _SILENT


def _is_young(run: RunDirectory) -> bool:
    """Whether the submitter of the run may still be waiting for Slurm's answer."""
    return time.time() - run.launched_at() < _SUBMITTING


def _is_requeued(run: RunDirectory, job: str, slurm: Slurm) -> bool:
    """Whether Slurm requeued a job that ran: known only from Slurm if its driver died with its host.

    squeue's answer may be older than the attempt, so Slurm's count of restarts decides.
    """
    events = run.events("driver-", "reconciler")
    attempt = max((e.body.attempt for e in events if isinstance(e.body, AttemptStarted)), default=0)
    if not attempt or any(isinstance(e.body, Pending) and e.body.attempt == attempt for e in events):
        return False
    record = parse_fields(slurm.record(job))
    waits = state_of(record.get("JobState", "")).is_waiting
    return waits and int(record.get("Restarts") or 0) >= attempt


def _conf(run: RunDirectory) -> str | None:
    return submission.read(run).settings.profile.slurm_conf


def _home(chosen: SlurmSettings, context: Context) -> script.Home:
    from trainshed.environments import environments_directory

    profile = chosen.profile
    local_home = str(script.local_disk(profile.scratch) / "home")
    return script.Home(
        python=profile.python or sys.executable,
        folder=profile.home or (local_home if profile.runs else str(context.home)),
        environments=profile.environments or str(environments_directory(context.environ)),
        runs=profile.runs or "",
    )


def _path(chosen: SlurmSettings, run: RunDirectory) -> str:
    """Where the driver of a run has its run directory."""
    if chosen.profile.runs:
        return str(script.local_disk(chosen.profile.scratch) / "carried-0" / run.id)
    return str(run.path)


def _preview_plan(request: Request, left: Submission, keys: tuple[str, ...], name: str) -> Plan:
    """The plan on placeholder hosts, from an unassigned range of addresses."""
    wanted, context, chosen = request.job.resources, request.context, left.settings
    devices = tuple(Device(index) for index in range(wanted.devices))
    hosts = [
        Host(f"slurm-node-{i}", f"198.{18 + (i >> 16)}.{i >> 8 & 255}.{i & 255}", devices, 10241)
        for i in range(wanted.nodes)
    ]
    site = Site(
        python="python" if chosen.profile.login else python_of(request.job, context.environ),
        search_path=context.search_path,
        scratch=str(Path(script.local_disk(chosen.profile.scratch)) / name),
        library=str(PAYLOAD),
        isolated=chosen.profile.isolation != "plain",
        cpus=wanted.devices * chosen.profile.cpus_per_device,
        user=context.user,
        team=context.team,
        uid=os.getuid(),
        gid=os.getgid(),
        emulate=request.emulated,
        store=left.store,
        keys=keys,
        process_env=process_env(chosen.profile.cpus_per_device),
    )
    job = request.job.model_copy(update={"env": chosen.profile.env | request.job.env})
    planned = plan(job, Topology.of(wanted.kind, hosts), site, name)
    notes = [*planned.notes, _PLACEHOLDERS, *script.queue_notes(request.job, chosen)]
    return replace(planned, notes=tuple(notes))


ENGINE = SlurmEngine()
