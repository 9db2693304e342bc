"""The driver of a run on a cluster: one process on the allocation's first node.

It learns the facts of every node, plans, starts one agent per node and records
the end. It decides nothing about ranks. When it dies, agents notice by the end
of their pipe and stop. What only one cluster knows (its nodes, why it ends a
job) its engine adds in a subclass.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets as random
import signal
import socket
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainshed.agent import sandbox
from trainshed.agent.handover import Handover
from trainshed.agent.reports import FOLDER as REPORTS
from trainshed.engines.cluster import containers, enter, nodes
from trainshed.engines.cluster.order import Facts, Order, Question
from trainshed.engines.cluster.starter import hosted
from trainshed.engines.cluster.step import ANSWER, LOG, ClusterStep, Failed
from trainshed.errors import TrainshedError
from trainshed.files import is_held
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import ProcessEnv, Site
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import AttemptStarted, EventWriter, Note
from trainshed.runs.logs import tail
from trainshed.runs.outcome import Failure, Outcome, describe_exit
from trainshed.runs.states import Cause
from trainshed.runs.store_sync import StoreSync
from trainshed.spec.job import JobSpec

_CLOSING = 3600.0
"""The longest agents may take to save outputs after the run was stopped."""
_OVERTIME = 30.0
"""Seconds after a job's own timeout until the driver keeps it, if the coordinator did not."""
_AFTER_END = 60.0
"""Seconds starters may take once the coordinator has recorded the end of the attempt: a launcher may hang."""
_ORPHANED = 15.0
"""Seconds beyond a job's grace for agents to end whose launcher was killed."""
_NEVER = float("inf")
_TICK = 0.5


@dataclass(frozen=True, slots=True)
class Terms:
    """How the nodes of a cluster are used by one run."""

    scratch: Path
    """The run's folder on each node's own disk."""
    isolation: str = "auto"
    container: str = "podman"
    user: str = "trainshed"
    team: str = "default"
    emulate: bool = False
    store: Mapping[str, str] = field(default_factory=dict)
    """Variables of the object store, without its keys."""
    env: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables of the driver's own node, after the site's modules: search path, home, environments."""
    process_env: ProcessEnv | None = None

    @property
    def cache(self) -> Path:
        """Where a node keeps inputs between runs: on its own disk."""
        return self.scratch.parent / "cache"


@dataclass
class ClusterDriver(ABC):
    """Runs the attempts of a run in one allocation."""

    run: RunDirectory
    job: JobSpec
    terms: Terms
    values: Mapping[str, str]
    """The job's secrets and the store's keys."""
    start: int = 0
    """How often the cluster has started this driver before: each start has its own events."""
    sync: StoreSync | None = None
    """Uploads the run to an object store, where nodes share no file system."""
    access: Mapping[str, str] = field(default_factory=dict)
    _stop: Failure | None = None
    _attempt: int = 0

    @abstractmethod
    def allocation(self) -> tuple[str, str]:
        """The nodes of the allocation, as the cluster writes them, and its own name for the job."""

    @abstractmethod
    def question(self) -> Question:
        """What starters need to know; Failed when the cluster does not say."""

    @abstractmethod
    def open_step(self) -> ClusterStep:
        """A starter on every node."""

    @abstractmethod
    def explain(self, stop: Failure) -> Failure:
        """Why the cluster stopped this driver, as far as known."""

    @abstractmethod
    def conclude(self, outcome: Outcome) -> Outcome | None:
        """The outcome with what the cluster did to the job meanwhile; None: it will start the run again."""

    def look(self) -> None:
        """Called again and again while agents work: may set a stop."""
        return

    def drive(self) -> Outcome | None:
        """How the run ended; None when it did not: the cluster will start it again, or already has."""
        outcome = Outcome.of(None)
        self.run.reserve()
        for _ in range(self.job.retries + 1):
            outcome = nodes.explained(self.run, self._try())
            failure = outcome.failure
            if failure is None or self._stop or not failure.cause.is_retried or self.is_superseded():
                break
        return None if self.is_superseded() else self.conclude(outcome)

    @property
    def record(self) -> EventWriter:
        return self.run.writer(f"driver-{self.start}")

    def request_stop(self, failure: Failure) -> None:
        """The first reason counts."""
        self._stop = self._stop or failure

    def on_signal(self, number: int, _frame: object) -> None:
        self.request_stop(Failure(Cause.STOP, f"stopped by {signal.Signals(number).name}"))

    def is_superseded(self) -> bool:
        """Whether a later start of the same job has taken the run over: the cluster thought this one dead."""
        if self.sync and self.sync.is_superseded:
            return True
        return any(item.attempt > self._attempt for item in self.run.attempts())

    def _try(self) -> Outcome:
        self._attempt = 1 + max((item.attempt for item in self.run.attempts()), default=0)
        self.record.append(AttemptStarted(self._attempt, *self.allocation()))
        step = None
        try:
            if self.sync:
                self.sync.claim(self.start)
            self._check()
            question = self.question()
            step = self.open_step()
            planned, order = self._plan(step.facts(question, self._check))
            step.say(order.to_line() + self._handover(planned, order).to_line())
            code = self._watch(step, planned.grace)
        except Failed as failed:
            lines = tail(self.run.path / LOG, 5) if failed.failure.log else ()
            return Outcome.of(replace(failed.failure, last_lines=lines))
        except (TrainshedError, OSError) as error:
            return Outcome.of(Failure(Cause.ENGINE, str(error), log=LOG))
        finally:
            if step is not None:
                step.close()
        return self._outcome(code)

    def _check(self) -> None:
        """Ends the attempt when a stop was requested, also before this driver started."""
        if requested := self.run.stop_reason():
            raise Failed(Failure(Cause.STOP, requested))
        self.look()
        if self._stop:
            raise Failed(self._why_stopped(self._stop))

    def _plan(self, facts: list[Facts]) -> tuple[Plan, Order]:
        job, terms, isolation = self.job, self.terms, self._isolation(facts)
        hosts = [
            Host(f.name, f.address, tuple(Device(i, a) for i, a in f.devices), f.first_port) for f in facts
        ]
        site = Site(
            python=nodes.python_of(job, terms.environ),
            search_path=terms.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin",
            scratch=str(terms.scratch),
            library=str(nodes.PAYLOAD),
            isolated=isolation != "plain",
            cpus=min(f.cpus for f in facts),
            user=terms.user,
            team=terms.team,
            uid=os.getuid(),
            gid=os.getgid(),
            emulate=terms.emulate,
            store=terms.store,
            keys=tuple(sorted(self.values)),
            env=terms.env,
            process_env=terms.process_env,
            # A run in an object store has no folder that its nodes share.
            homes="" if self.sync else str(self.run.home / nodes.HOMES),
        )
        planned = plan(job, Topology.of(job.resources.kind, hosts), site, self.run.id)
        self.run.write("plan.json", json.dumps(planned.to_json()))
        location: dict[str, str] = {}
        if self.sync:
            self.sync.push()
            location = {"url": self.sync.url, **self.access}
        order = Order(
            attempt=self._attempt,
            isolation=isolation,
            scratch=str(terms.scratch),
            visible=tuple(nodes.visible(job, self.run.home, terms.environ)),
            writable=tuple(nodes.writable(job, self.run, terms.cache)),
            hosts=planned.hosts_file,
            place=location,
        )
        return planned, order

    def _isolation(self, facts: list[Facts]) -> str:
        """One way for all nodes: a plan's paths are the same everywhere."""
        wanted = self.terms.isolation
        if self.job.image:
            return "container"
        cannot = [f for f in facts if f.no_sandbox]
        if wanted == "plain" or not cannot:
            return "plain" if wanted == "plain" else "sandbox"
        where = f"node {cannot[0].index} ({cannot[0].name}): {cannot[0].no_sandbox}"
        if wanted == "sandbox":
            raise Failed(Failure(Cause.ENGINE, f"isolation=sandbox fails on {where}", cannot[0].index))
        self.record.append(Note(f"no isolation, because on {where}; {sandbox.WITHOUT}"))
        return "plain"

    def _handover(self, planned: Plan, order: Order) -> Handover:
        handover = Handover(
            secret=random.token_hex(32),
            attempt=self._attempt,
            secrets=self.values,
            cache=str(self.terms.cache),
            register_limit=ANSWER,
            beats=True,
        )
        node_run = hosted(self.run, "{node}") if self.sync else self.run
        shared = [path for path in order.writable if path != str(self.run.path)]
        if order.isolation == "sandbox":
            return replace(handover, hidden=(str(self.run.path), str(node_run.path), handover.cache))
        if order.isolation != "container":
            return handover
        node = f"{order.scratch}/node-{{node}}"
        mounts = [(f"{node}/{folder}", seen) for seen, folder in planned.nodes[0].private]
        reports = f"{node_run.path}/node-{{node}}/{REPORTS}"
        mounts += [(path, path) for path in (reports, *shared)]
        mounts += [(containers.PACKAGE, f"{containers.PACKAGE}:ro"), (f"{node}/hosts", "/etc/hosts:ro")]
        label = containers.label_of(self.run.id, "{node}")
        entrance = enter.prefix(sys.executable, self.terms.container, label, mounts)
        return replace(handover, prefix=entrance, root=node)

    def _watch(self, step: ClusterStep, grace: float) -> int:
        """Until all agents have ended; a stop is passed on once, and has an end."""
        began, deadline, ended = time.monotonic(), None, None
        gone = _Absence(self.run.node(0) / "alive.lock")
        while (code := step.wait(_TICK)) is None:
            if requested := self.run.stop_reason():
                self.request_stop(Failure(Cause.STOP, requested))  # also where no signal got through
            self.look()
            self._keep_timeout(time.monotonic() - began)
            if ended is None and nodes.recorded_outcome(self.run, self._attempt):
                # Nodes that share no file system still upload their part of the run to the store.
                ended = time.monotonic() + (_CLOSING if self.sync else _AFTER_END)
            if self._stop and deadline is None:
                deadline = time.monotonic() + grace + _CLOSING
                stop = self._why_stopped(self._stop)
                step.say(json.dumps({"cause": stop.cause.value, "reason": stop.reason}).encode() + b"\n")
            if deadline and len(self.run.stop_requests()) > 1:
                deadline = min(deadline, time.monotonic() + grace)
            if ended is None and gone.is_too_long():
                # Nobody is left to record an end; whoever still holds the step hangs.
                ended = time.monotonic()
            if self.is_superseded() or time.monotonic() > min(deadline or _NEVER, ended or _NEVER):
                step.close()
        return code

    def _keep_timeout(self, seconds: float) -> None:
        """The job's own timeout, if the coordinator does not keep it: it may hang."""
        limit = self.job.timeout
        if limit is not None and seconds > limit + self.job.grace + _OVERTIME:
            self.request_stop(Failure(Cause.TIMEOUT, f"not finished within its timeout of {limit:g} s"))

    def _awaited_outcome(self) -> Outcome | None:
        """What the coordinator records after its launcher was killed: agents stop by themselves then."""
        deadline = time.monotonic() + self.job.grace + _ORPHANED
        while time.monotonic() < deadline:
            if outcome := nodes.recorded_outcome(self.run, self._attempt):
                return outcome
            time.sleep(_TICK)
        return None

    def _why_stopped(self, stop: Failure) -> Failure:
        if stop.cause is Cause.TIMEOUT:
            return stop
        if self.sync:
            with contextlib.suppress(TrainshedError):
                self.sync.fetch_requests()
        requested = self.run.stop_reason()
        return Failure(Cause.STOP, requested) if requested else self.explain(stop)

    def _outcome(self, code: int) -> Outcome:
        """The coordinator's account; without it a stop's, the first agent's own, or how the step ended."""
        outcome = self._awaited_outcome() if code < 0 else nodes.recorded_outcome(self.run, self._attempt)
        if outcome and not (code < 0 and outcome.failure and outcome.failure.cause is Cause.DRIVER):
            return outcome
        if self._stop:
            return Outcome.of(self._why_stopped(self._stop))
        if self.sync:
            self.sync.fetch(_is_record)
        if failure := nodes.first_failure(self.run, self._attempt):
            return Outcome.of(failure)
        reason = "the agents ended without recording why"
        reason = (
            f"the cluster's launcher {describe_exit(code)}" if code < 0 else f"{reason} (exit code {code})"
        )
        return Outcome.of(Failure(Cause.NODE, reason, log=LOG, last_lines=tail(self.run.path / LOG, 5)))


@dataclass
class _Absence:
    """Since when node 0's agent, which coordinates, is gone. It lives on the driver's machine.

    One that was never seen says nothing: it may not have begun, and not every file system has locks.
    """

    lock: Path
    _seen: float = _NEVER

    def is_too_long(self) -> bool:
        if is_held(self.lock):
            self._seen = time.monotonic()
        return time.monotonic() > self._seen + _AFTER_END


def finish(run: RunDirectory, make: Callable[[], ClusterDriver], forget: Callable[[], None]) -> int:
    """Run to the end, which is recorded whatever happens; the job's exit code."""
    if run.end():
        return 0
    outcome: Outcome | None
    try:
        driver = make()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, driver.on_signal)
        outcome = driver.drive()
    except TrainshedError as error:
        outcome = Outcome.of(Failure(Cause.ENGINE, f"on {socket.gethostname()}: {error}", log=LOG))
    except Exception as error:  # a mistake of ours: the run must still end and say so
        traceback.print_exc()
        outcome = Outcome.of(Failure(Cause.ENGINE, f"internal error in the driver: {error!r}", log=LOG))
    if outcome is None:
        return 0
    forget()
    nodes.record_end(run, outcome)
    return outcome.exit_code


def _is_record(name: str) -> bool:
    """Whether a file is another node's record."""
    return name.startswith("events/node-") and not name.startswith("events/node-0-")
