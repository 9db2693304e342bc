"""The driver of a run: what the batch script becomes on the allocation's first node.

It learns the facts of every node, plans, starts one agent a node and records
the end. It decides nothing about ranks. When it dies, agents notice by the end
of their pipe and stop; when Slurm ends the job, Slurm's word gives the reason.
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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainshed.agent import sandbox
from trainshed.agent.handover import Handover
from trainshed.engines import _containers as containers
from trainshed.engines import _driving as driving
from trainshed.engines.slurm import carried, enter, handed, script
from trainshed.engines.slurm.carried import Carrier
from trainshed.engines.slurm.client import Slurm, SlurmError
from trainshed.engines.slurm.order import Facts, Order, Question
from trainshed.engines.slurm.states import (
    REQUEUED,
    JobState,
    failure_of,
    parse_devices,
    parse_fields,
    parse_notice,
    state_of,
)
from trainshed.engines.slurm.step import ANSWER, Failed, Step
from trainshed.errors import TrainshedError
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Kind
from trainshed.runs.logs import tail
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.load import load_job

_CLOSING = 3600.0
"""The longest agents may take to save outputs after the run was told to stop."""
_TICK = 0.5
_SOON = 120.0
"""Slurm warns of the time limit up to a minute earlier than it was asked to."""
_OWN_WORDS = (Cause.RANK, Cause.TIMEOUT, Cause.HOOK, Cause.MEMORY, Cause.STAGING)
"""Causes that Slurm cannot know better."""
_SIGNALLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


@dataclass
class Driver:
    """Brings one Slurm job through the attempts of a run."""

    run: RunDirectory
    job: JobSpec
    submission: handed.Submission
    values: dict[str, str]
    slurm: Slurm = field(default_factory=Slurm)
    carrier: Carrier | None = None
    """What brings the run to an object store, where nodes share no file system."""
    access: Mapping[str, str] = field(default_factory=dict)
    _stop: Failure | None = None
    _attempt: int = 0
    _log_from: int = 0
    """Where this start of the job begins in its log: what is before it tells of earlier ones."""

    def drive(self) -> Outcome | None:
        """How the run ended; None when it did not: Slurm will start it again, or already has."""
        with contextlib.suppress(OSError):
            self._log_from = (self.run.path / "slurm.log").stat().st_size
        outcome = Outcome.of(None)
        for _ in range(self.job.retries + 1):
            outcome = self._try()
            failure = outcome.failure
            if failure is None or self._stop or not failure.cause.is_retried or self.is_superseded():
                break
        return self._by_slurm(outcome)

    def on_signal(self, number: int, _frame: object) -> None:
        self._stop = self._stop or Failure(Cause.STOP, f"stopped by {signal.Signals(number).name}")

    def is_superseded(self) -> bool:
        """Whether a later start of the same job has taken the run over: Slurm thought this one dead."""
        if self.carrier and self.carrier.is_superseded:
            return True
        attempts = [e.data.get("attempt", 1) for e in self.run.events() if e.kind is Kind.ATTEMPT]
        return bool(attempts) and max(attempts) > self._attempt

    def _try(self) -> Outcome:
        events = list(self.run.events())
        self._attempt = 1 + sum(event.kind is Kind.ATTEMPT for event in events)
        nodelist, began = os.environ["SLURM_JOB_NODELIST"], time.time()
        self.run.append(Kind.ATTEMPT, attempt=self._attempt, slurm_job=_job_id(), nodes=nodelist)
        step = None
        try:
            if self.carrier:
                self.carrier.claim(self._attempt)
            self._check()
            hosts = self.slurm.hosts(nodelist)
            question = self._question(hosts)
            step = Step(self.run.path, hosts, self.submission.settings.profile.srun)
            planned, order = self._plan(step.facts(question, self._check))
            step.say(order.to_line() + self._handover(planned, order).to_line())
            code = self._watch(step, planned.grace)
        except Failed as failed:
            lines = tail(self.run.path / "slurm.log", 5) if failed.failure.log else ()
            return Outcome.of(replace(failed.failure, last_lines=lines))
        except (TrainshedError, OSError) as error:
            return Outcome.of(Failure(Cause.ENGINE, str(error), log="slurm.log"))
        finally:
            if step is not None:
                step.close()
        return self._outcome(len(events), began, len(hosts), code)

    def _check(self) -> None:
        """Ends the attempt when somebody has asked for that, also before this driver was there."""
        if asked := driving.stop_reason(self.run):
            raise Failed(Failure(Cause.STOP, asked))
        if self._stop:
            raise Failed(self._why_stopped(self._stop))

    def _question(self, hosts: list[str]) -> Question:
        wanted, profile = self.job.resources, self.submission.settings.profile
        kind = DeviceKind.CPU if self.submission.emulate else wanted.kind
        listed = {node.get("NodeName", ""): node for node in self.slurm.nodes(",".join(hosts))}
        addresses = tuple(_resolve(listed.get(name, {}).get("NodeAddr", name), name) for name in hosts)
        indexes: tuple[tuple[int, ...], ...] = ()
        if kind is not DeviceKind.CPU:
            by_list = parse_devices(self.slurm.record(_job_id()), profile.gres_name(kind))
            by_name = {name: found for nodes, found in by_list.items() for name in self.slurm.hosts(nodes)}
            indexes = tuple(by_name.get(name, ()) for name in hosts)
        return Question(kind.value, wanted.devices, profile.interface or "", addresses, indexes)

    def _plan(self, facts: list[Facts]) -> tuple[Plan, Order]:
        job, profile = self.job, self.submission.settings.profile
        scratch = script.own_disk(profile.scratch) / self.run.id
        isolation = self._isolation(facts)
        hosts = [
            Host(f.name, f.address, tuple(Device(i, a) for i, a in f.devices), f.first_port) for f in facts
        ]
        site = Site(
            python=driving.python_of(job),
            search_path=os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
            scratch=str(scratch),
            library=str(driving.LIBRARY),
            isolated=isolation != "plain",
            cpus=min(f.cpus for f in facts),
            user=self.submission.user,
            uid=os.getuid(),
            gid=os.getgid(),
            emulate=self.submission.emulate,
            store=self.submission.store,
            keys=tuple(sorted(self.values)),
        )
        planned = plan(job, Topology.of(job.resources.kind, hosts), site, self.run.id)
        self.run.write("plan.json", json.dumps(planned.to_json()))
        way = {}
        if self.carrier:
            self.carrier.push()
            way = {"url": self.carrier.url, **self.access}
        writable = driving.writable(job, self.run, _cache(scratch))
        visible = tuple(driving.visible(job))
        order = Order(isolation, str(scratch), visible, tuple(writable), planned.hosts_file, way)
        return planned, order

    def _isolation(self, facts: list[Facts]) -> str:
        """One way for all nodes: a plan's paths are the same everywhere."""
        wanted = self.submission.settings.profile.isolation
        if self.job.image:
            return "container"
        cannot = [f for f in facts if f.no_sandbox]
        if wanted == "plain" or not cannot:
            return "plain" if wanted == "plain" else "sandbox"
        where = f"node {cannot[0].index} ({cannot[0].name}): {cannot[0].no_sandbox}"
        if wanted == "sandbox":
            raise Failed(Failure(Cause.ENGINE, f"isolation=sandbox fails on {where}", cannot[0].index))
        self.run.append(Kind.NOTE, text=f"no isolation, since on {where}; {sandbox.WITHOUT}")
        return "plain"

    def _handover(self, planned: Plan, order: Order) -> Handover:
        given = Handover(
            secret=random.token_hex(32),
            attempt=self._attempt,
            secrets=self.values,
            cache=str(_cache(Path(order.scratch))),
            register_limit=ANSWER,
        )
        if order.isolation != "container":
            return given
        node = f"{order.scratch}/node-{{node}}"
        mounts = [(f"{node}/{folder}", seen) for seen, folder in planned.nodes[0].private]
        own = carried.hosted(self.run, "{node}") if self.carrier else self.run
        shared = (path for path in order.writable if path != str(self.run.path))
        mounts += [(path, path) for path in (str(own.path), *shared)]
        mounts += [(containers.PACKAGE, f"{containers.PACKAGE}:ro"), (f"{node}/hosts", "/etc/hosts:ro")]
        tool = self.submission.settings.profile.container or "podman"
        label = containers.label_of(self.run.id, "{node}")
        return replace(given, prefix=enter.prefix(sys.executable, tool, label, mounts), root=node)

    def _watch(self, step: Step, grace: float) -> int:
        """Until all agents have ended; a stop is passed on once, and has an end."""
        deadline = None
        while (code := step.wait(_TICK)) is None:
            if self._stop is None and (asked := driving.stop_reason(self.run)):
                self._stop = Failure(Cause.STOP, asked)  # also where Slurm's signal did not get through
            if self._stop and deadline is None:
                deadline = time.monotonic() + grace + _CLOSING
                stop = self._why_stopped(self._stop)
                step.say(json.dumps({"cause": stop.cause.value, "reason": stop.reason}).encode() + b"\n")
            if self.is_superseded() or (deadline and time.monotonic() > deadline):
                step.close()
        return code

    def _why_stopped(self, stop: Failure) -> Failure:
        """The same signal tells of a stop, of the end of the time limit, and of Slurm taking nodes away."""
        if self.carrier:
            with contextlib.suppress(TrainshedError):
                self.carrier.hear()
        if asked := driving.stop_reason(self.run):
            return Failure(Cause.STOP, asked)
        record, state = self._record()
        if state is JobState.RUNNING and _is_soon(record.get("EndTime", "")):
            return failure_of(JobState.TIMEOUT)
        return failure_of(state) if state.is_over and state is not JobState.COMPLETED else stop

    def _outcome(self, began: int, since: float, nodes: int, code: int) -> Outcome:
        """The coordinator's word; without it a stop's, the first agent's own, or how srun ended."""
        if word := driving.coordinators_word(self.run, began):
            return word
        if self._stop:
            return Outcome.of(self._why_stopped(self._stop))
        if self.carrier:
            self.carrier.fetch(_is_record)
        if failure := driving.first_failure(self.run, range(nodes), since):
            return Outcome.of(failure)
        reason = f"the agents ended without a word (srun exited with {code})"
        lines = tail(self.run.path / "slurm.log", 5)
        return Outcome.of(Failure(Cause.NODE, reason, log="slurm.log", last_lines=lines))

    def _by_slurm(self, outcome: Outcome) -> Outcome | None:
        """The outcome in the light of what Slurm did to the job meanwhile."""
        failure = outcome.failure
        if self.is_superseded():
            return None
        # Slurm signals ranks too when it ends a job: their death by it is no reason of their own.
        signalled = failure is not None and failure.exit_code in _SIGNALLED
        if failure is None or driving.stop_reason(self.run):
            return outcome
        if failure.cause in _OWN_WORDS and not signalled:
            return outcome
        record, state = self._record()
        earlier = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        if state.is_waiting or int(record.get("Restarts") or 0) > earlier:
            self.run.append(Kind.PENDING, reason=REQUEUED)
            return None
        if state.is_over and state not in (JobState.COMPLETED, JobState.FAILED):
            return Outcome.of(failure_of(state))
        return outcome

    def _record(self) -> tuple[dict[str, str], JobState]:
        """Slurm's fields of the job, and its state as far as it can be known while the job still ends."""
        try:
            record = parse_fields(self.slurm.record(_job_id()))
        except SlurmError:
            return {}, JobState.UNKNOWN
        state = state_of(record.get("JobState", ""))
        if state is JobState.COMPLETING:
            with contextlib.suppress(OSError), (self.run.path / "slurm.log").open("rb") as log:
                log.seek(self._log_from)
                state = parse_notice(log.read().decode("utf-8", "replace")) or JobState.CANCELLED
        return record, state


def _job_id() -> str:
    return os.environ["SLURM_JOB_ID"]


def _resolve(address: str, name: str) -> str:
    """The IPv4 address of a node as Slurm knows it; else by its name."""
    for text in (address, name):
        with contextlib.suppress(OSError):
            return socket.gethostbyname(text)
    raise Failed(Failure(Cause.NODE, f"node {name}: neither {address!r} nor its name leads to an address"))


def _is_soon(stamp: str) -> bool:
    try:
        return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S")) - time.time() < _SOON
    except ValueError:
        return False


def _is_record(name: str) -> bool:
    """Whether a file is what another node tells of itself."""
    folder, _, rest = name.partition("/")
    return folder.startswith("node-") and folder != "node-0" and rest == "events.jsonl"


def _cache(scratch: Path) -> Path:
    """Where a node keeps inputs between runs: on its own disk."""
    return scratch.parent / "cache"


def drive(run: RunDirectory, carrier: Carrier | None = None, access: Mapping[str, str] | None = None) -> int:
    """Bring a run to its end, recorded whatever happens; the job's exit code."""
    if any(event.kind is Kind.FINISHED for event in run.events()):
        return 0
    outcome: Outcome | None
    try:
        job = load_job(run.path / "job.yaml")
        submission = handed.read(run)
        # The site's variables reach every rank; the job's own win.
        job = job.model_copy(update={"env": submission.settings.profile.env | job.env})
        values = handed.secrets(run, bool(job.secrets or submission.store))
        driver = Driver(run, job, submission, values, carrier=carrier, access=access or {})
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, driver.on_signal)
        outcome = driver.drive()
    except TrainshedError as error:
        outcome = Outcome.of(Failure(Cause.ENGINE, f"on {socket.gethostname()}: {error}", log="slurm.log"))
    except Exception as error:  # a mistake of ours: the run must still end and say so
        traceback.print_exc()
        outcome = Outcome.of(Failure(Cause.ENGINE, f"the driver made a mistake: {error!r}", log="slurm.log"))
    if outcome is None:
        return 0
    handed.forget(run)
    driving.record_end(run, outcome)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(drive(RunDirectory(Path(sys.argv[1]))))
