"""Client: the one way to submit, list, follow and stop runs on this machine's Trainshed home.

It carries the context (home, user, team, secrets, store, labels). `Client()` is the
one place of the library that takes them from the process; nothing beneath it does.
It installs no signal handlers.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainshed import files, registry
from trainshed.access import StoreAccess
from trainshed.agent.environment import clean
from trainshed.api import functions, makers, queued
from trainshed.api.run import Run
from trainshed.engines.base import Check, Context, Engine, Prepared, Request
from trainshed.errors import TrainshedError, UsageError
from trainshed.home import trainshed_home
from trainshed.runs import locations, reconciler
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import UnreadableRunError
from trainshed.runs.newest import newest_first
from trainshed.runs.states import RunState
from trainshed.runs.summary import (
    EngineStatus,
    Summary,
    is_alive,
    is_queued,
    summaries,
    summarise,
    unreadable,
)
from trainshed.spec.job import JobSpec, check_labels
from trainshed.spec.load import dump_job, load_job

if TYPE_CHECKING:
    from trainshed.store import Credentials

Job = str | Path | Mapping[str, Any] | JobSpec | Callable[..., Any]
_SETTINGS = ("TRAINSHED_PROFILE", "TRAINSHED_CPU_SLOTS", "TRAINSHED_EMULATED_DEVICES")
"""Variables that engines read, beside those that drivers and agents inherit."""


class Client:
    """Runs of one home, for one user.

    `Client()` and `Client(home)` work for whoever runs this process, with the process's variables as they are
    now (`Client.from_environment`). With a `user` the client works for that user, with what it is given and
    nothing of the process:

    - `secrets`: values that jobs may name (`secrets: {API_KEY: {env: NAME}}` gets `secrets["NAME"]`),
    - `store`: the keys of every s3:// and obs:// URL; without them the profiles and the embedded store of `home`,
    - `environ`: settings that are no secrets: PATH, HOME, proxies, TRAINSHED_ENVS, TRAINSHED_CPU_SLOTS,
    - `labels`: set on every run that is submitted.

    `Client("https://…", token=…)` is a RemoteClient, which has the same methods and works on a server.
    """

    def __new__(cls, home: str | Path | None = None, *_: Any, **options: Any) -> Any:
        if isinstance(home, str) and home.startswith(("http://", "https://")):
            from trainshed.api.remote import RemoteClient

            return RemoteClient(home, **options)
        return super().__new__(cls)

    def __init__(
        self,
        home: str | Path | None = None,
        *,
        user: str | None = None,
        team: str = "default",
        secrets: Mapping[str, str] | None = None,
        store: StoreAccess | Credentials | None = None,
        labels: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if user is None:
            if secrets is not None or store is not None or environ is not None:
                raise UsageError(
                    "Client: secrets, store and environ belong to a user",
                    "name the user, or leave all three out",
                )
            self.context = _context_of(os.environ, home, team)
        else:
            self.context = _context(home, user, team, secrets or {}, store, environ or {})
        self.home = self.context.home
        self.labels = dict(labels or {})
        self._runs = Runs.of(self.home)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], home: str | Path | None = None) -> Client:
        """A client for whoever has these variables: home, user, secrets, store and settings are taken from them."""
        context = _context_of(environ, home)
        return cls(
            context.home,
            user=context.user,
            secrets=context.secrets,
            store=context.store,
            environ=context.environ,
        )

    def submit(
        self,
        job: Job,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        engine: str = "local",
        shape: str | None = None,
        options: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        emulate: bool = False,
        attached: bool = False,
        **overrides: Any,
    ) -> Run:
        """Start a job and return its run.

        The job is the path of a job file, a mapping with its fields, a JobSpec, or a function, which is
        started once per rank with `args` and `kwargs`. `shape` is nodes x devices (`2x2`); further keyword
        arguments are fields of the job (`environment="pytorch"`). `attached`: the run ends with this process.
        """
        request = self.request(
            job,
            *args,
            kwargs=kwargs,
            shape=shape,
            options=options,
            labels=labels,
            emulate=emulate,
            attached=attached,
            **overrides,
        )
        return self.start(request, engine)[0]

    def run(self, job: Job, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        """Submit a job and wait for it: its outcome, or a function's return value; raises RunFailed."""
        return self.submit(job, *args, **options).result(timeout)

    def request(
        self,
        job: Job,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        shape: str | None = None,
        options: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        emulate: bool = False,
        attached: bool = False,
        count: int = 1,
        fields: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> Request:
        """A submission that has not happened: every mistake in it is found here.

        `fields` are fields of the job, as the keyword arguments are, under any name.
        """
        overrides |= fields or {}
        if shape:
            overrides["resources"] = shape
        marks = {**self.labels, **(labels or {})}
        try:
            check_labels(marks)
        except ValueError as error:
            raise UsageError(f"labels: {error}", "write short names and values") from error
        if isinstance(job, JobSpec):
            fields = job.model_dump(mode="json", exclude_unset=True)
            spec = load_job(fields, overrides) if overrides else job
        elif isinstance(job, str | Path | Mapping):
            spec = load_job(job, overrides)
        else:
            spec = functions.job_of(job, args, dict(kwargs or {}), overrides, self.home)
            args, kwargs = (), None
        if args or kwargs:
            raise UsageError("arguments are only for functions", "write parameters={…} for a job")
        text = {name: str(value) for name, value in (options or {}).items()}
        return Request(
            spec, self.context, emulate=emulate, attached=attached, options=text, labels=marks, count=count
        )

    def start(self, request: Request, engine: str = "local", ids: Sequence[str] = ()) -> list[Run]:
        """Submit = prepare + launch. Refused, nothing is left behind. `ids` are made if none are given."""
        makers.make_inputs(request.job, request.context.process_variables())
        runs: list[RunDirectory] = []
        locks: list[int] = []
        prepared: Prepared | None = None
        try:
            member = registry.load("engine", engine)
            runs = queued.create(self._runs, request.job.name, len(ids) or member.count(request), ids)
            for run in runs:
                lock = files.hold(run.alive_path)
                assert lock is not None, "a fresh run directory has no other holder"
                locks.append(lock)
            prepared = member.prepare(request, runs)
            for run in runs:
                self._record(member, prepared, run, runs)
            member.launch(prepared, runs, locks)
        except BaseException:
            while locks:
                os.close(locks.pop())
            for run in runs:
                # The first error must be reported.
                with contextlib.suppress(TrainshedError, OSError):
                    self._undo(member, run)
            if not any(run.path.exists() for run in runs):
                functions.discard(request.job.code, self.home)
            raise
        finally:
            if prepared:
                prepared.close()
            for lock in locks:
                os.close(lock)
        return [Run(self, run) for run in runs]

    def start_each(self, requests: Sequence[Request], engine: str = "local") -> Iterator[list[Run]]:
        """Start several jobs, as many at once as the engine likes; the first refusal ends it, by name."""
        member = registry.load("engine", engine)
        refused: list[TrainshedError] = []

        def one(request: Request) -> list[Run]:
            if refused:
                return []
            try:
                return self.start(request, engine)
            except TrainshedError as error:
                error.message = f"job {request.job.name}: {error.message}"
                refused.append(error)
                return []

        if member.at_once == 1:
            yield from filter(None, map(one, requests))
        else:
            pool = ThreadPoolExecutor(member.at_once)
            try:
                yield from filter(None, pool.map(one, requests))
            finally:
                pool.shutdown(cancel_futures=True)
        if refused:
            raise refused[0]

    def plan(self, request: Request, engine: str = "local") -> Prepared:
        """What `start` would do, without doing any of it. Close it when done."""
        member = registry.load("engine", engine)
        count = member.count(request)
        name = f"{request.job.name}-preview"
        names = [name] if count == 1 else [f"{name}.{index}" for index in range(count)]
        prepared = member.prepare(request, [RunDirectory(self._runs.root / name) for name in names])
        prepared.close()
        return prepared

    def accept(
        self, request: Request, engine: str = "local", reason: str = queued.WAITS, ids: Sequence[str] = ()
    ) -> Run:
        """Take a job into a queue: its run is there and waits; nothing is started. Refused, nothing is left."""
        makers.make_inputs(request.job, request.context.process_variables())
        return Run(self, queued.accept(self._runs, request, engine, reason, ids))

    def launch(self, run: Run, secrets: Mapping[str, str] | None = None) -> bool:
        """Start a run that was accepted; False if it was started already, or has ended.

        `secrets` are the values of the job's secrets, if they were resolved elsewhere. Refused (code
        `devices-busy`, or for good), it goes on waiting. Whoever launches at the same time, it starts once.
        """
        return queued.launch(run.directory, self.context, secrets)

    def refuse(self, run: Run, reason: str) -> bool:
        """End a queued run that cannot be launched; False if it does not wait any more."""
        return queued.refuse(run.directory, reason)

    def get(self, run: str) -> Run:
        """The run of that id, or the only one whose id begins so; `last` is the newest."""
        return Run(self, self._runs.find(run))

    def runs(self, labels: Mapping[str, str] | None = None) -> list[Run]:
        """All runs, newest first; only those that have all of `labels`, if given."""
        found = self._runs.labelled(dict(labels)) if labels else self._runs.all()
        return [Run(self, run) for run in found]

    def summaries(self) -> Iterator[Summary]:
        """The state of every run, newest first, after a look at those that have not ended.

        Only these are held, so that a list of any number of runs takes the same memory.
        """
        return newest_first(self._summaries())

    def _summaries(self) -> Iterator[Summary]:
        live: list[Summary] = []
        for summary in summaries(self._runs):
            if summary.state.is_final or summary.state is RunState.UNREADABLE:
                yield summary
            else:
                live.append(summary)
        directories = [RunDirectory(self._runs.root / summary.id) for summary in live]
        fresh = {summary.id: summary for summary in self._refresh(directories)}
        yield from (fresh.get(summary.id, summary) for summary in live)

    def refresh(self, runs: Sequence[Run], strict: bool = True) -> list[Summary]:
        """Ask the engines about runs, one question for all of each, and record what follows.

        An unreadable run raises, or is left out without `strict`.
        """
        return self._refresh([run.directory for run in runs], strict)

    def stop(self, run: Run, reason: str) -> None:
        """Ask for a run's end; asked again, what is left of it is killed after its grace."""
        if run.refresh().state.is_final:
            return
        again = bool(run.directory.stop_reason())
        locations.request_stop(run.directory, reason, self.context.user, self.context.store)
        if is_queued(run.directory) and run.refresh().state.is_final:
            return
        self._engine(run.directory).stop(run.directory, again)

    def remove(self, run: Run, force: bool = False) -> None:
        """Remove an ended run and what its engine and place keep of it.

        `force` also removes one that cannot be read, or whose place cannot be reached.
        """
        try:
            ended = run.refresh().state.is_final
        except UnreadableRunError as error:
            if not force:
                raise
            if is_alive(run.directory):
                raise UsageError(
                    f"run {run.id} has not ended: its processes live", "stop them first"
                ) from error
            functions.forget(run.directory)
            self._runs.remove(run.directory)
            return
        if not ended:
            raise UsageError(f"run {run.id} has not ended", f"stop it first: trainshed stop {run.id}")
        try:
            self._engine(run.directory).forget(run.directory)
            locations.remove(run.directory, self.context.store)
        except TrainshedError:
            if not force:
                raise
        functions.forget(run.directory)
        self._runs.remove(run.directory)

    def describe(self, engine: str = "local") -> list[Check]:
        """What an engine has here, and what it lacks."""
        return registry.load("engine", engine).describe(self.context)

    def _undo(self, engine: Engine, run: RunDirectory) -> None:
        """Leave nothing of a submission that failed; a driver that runs already is stopped instead."""
        if files.is_held(run.alive_path):
            run.request_stop("its submission was interrupted", self.context.user)
            engine.stop(run, kill=False)
            return
        try:
            engine.forget(run)
        finally:
            shutil.rmtree(run.path, ignore_errors=True)

    def _record(
        self, engine: Engine, prepared: Prepared, run: RunDirectory, runs: Sequence[RunDirectory]
    ) -> None:
        """The request, as it was prepared; from now on the run is there for readers."""
        request, job = prepared.request, prepared.request.job
        run.write("job.yaml", dump_job(job))
        if prepared.is_final:
            run.write("plan.json", json.dumps(prepared.plan.to_json()))
        run.writer("submit").append(
            replace(
                queued.submitted(request, engine),
                isolation=prepared.isolation,
                array=tuple(other.id for other in runs) if len(runs) > 1 else (),
                settings=dict(prepared.settings),
            )
        )

    def _engine(self, run: RunDirectory) -> Engine:
        return registry.load("engine", run.submission().engine)

    def _refresh(self, runs: Sequence[RunDirectory], strict: bool = False) -> list[Summary]:
        """Summaries of runs; with `strict`, an unreadable one raises."""
        by_engine: dict[str, list[RunDirectory]] = {}
        failed: dict[str, UnreadableRunError] = {}
        for run in runs:
            try:
                if not run.end():
                    by_engine.setdefault(run.submission().engine, []).append(run)
            except UnreadableRunError as error:
                failed[run.id] = error
        statuses: dict[str, EngineStatus] = {}
        for name, group in by_engine.items():
            polled = self._poll(name, group)
            for run in group:
                try:
                    statuses[run.id] = self._reconcile(run, name, polled[run.id])
                except UnreadableRunError as error:
                    failed[run.id] = error
        found = []
        for run in runs:
            try:
                if run.id in failed:
                    raise failed[run.id]
                found.append(summarise(run, statuses.get(run.id)))
            except UnreadableRunError as error:
                if strict:
                    raise
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    found.append(unreadable(run, error))
        return found

    def _poll(self, engine: str, runs: Sequence[RunDirectory]) -> dict[str, EngineStatus]:
        """An engine that cannot be asked says so; its runs are not taken for dead."""
        # Before the question: what leaves its queue meanwhile is no longer what the engine answered about.
        waiting = {run.id for run in runs if is_queued(run)}
        try:
            polled = registry.load("engine", engine).poll(runs)
        except TrainshedError as error:
            return {run.id: EngineStatus(problem=error.message) for run in runs}
        return {name: replace(status, queued=name in waiting) for name, status in polled.items()}

    def _reconcile(self, run: RunDirectory, engine: str, status: EngineStatus) -> EngineStatus:
        """What cannot be recorded (a full disk) is the problem of that run and of no other."""
        try:
            clear_up = registry.load("engine", engine).clear_up
            return reconciler.reconcile(run, status, self.context.store, clear_up)
        except UnreadableRunError:
            raise
        except (TrainshedError, OSError) as error:
            return EngineStatus(problem=str(error))


def _context(
    home: str | Path | None,
    user: str,
    team: str,
    secrets: Mapping[str, str],
    store: StoreAccess | Credentials | None,
    environ: Mapping[str, str],
) -> Context:
    if home is None or not user:
        raise UsageError(
            f"Client: home is {home!r} and user {user!r}",
            "a client for a user needs a home and the user's name",
        )
    folder = Path(home).absolute()
    if not isinstance(store, StoreAccess):
        store = StoreAccess(folder, store)
    settings = {**environ, "TRAINSHED_HOME": str(folder)}
    return Context(folder, user, store, team, dict(secrets), settings)


def _context_of(environ: Mapping[str, str], home: str | Path | None, team: str = "default") -> Context:
    """Everything from variables: any of them can be a secret that a job names; few of them are settings."""
    folder = Path(home).expanduser().absolute() if home else trainshed_home(environ)
    settings = {name: value for name, value in environ.items() if name in _SETTINGS} | clean(environ)
    access = StoreAccess.from_environment(environ, folder)
    return _context(folder, _user(environ), team, environ, access, settings)


def _user(environ: Mapping[str, str]) -> str:
    """Who submits, by the variables given, or else by whom this process runs as."""
    if name := environ.get("LOGNAME") or environ.get("USER"):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
