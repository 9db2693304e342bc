"""The driver of a run in a Slurm job: what the batch script becomes on the allocation's first node.

What all clusters share is in `engines.cluster.driver`; here is what Slurm says:
which nodes and devices there are, and why it ends a job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainshed.engines.cluster import guard, starter
from trainshed.engines.cluster.driver import ClusterDriver, Terms, finish
from trainshed.engines.cluster.order import Question
from trainshed.engines.cluster.step import LOG, ClusterStep, Failed
from trainshed.engines.slurm import environment, script, submission
from trainshed.engines.slurm.client import Slurm, SlurmError
from trainshed.engines.slurm.profile import Profile
from trainshed.engines.slurm.states import (
    JobState,
    failure_of,
    parse_devices,
    parse_fields,
    parse_notice,
    state_of,
)
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Pending
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.reconciler import REQUEUED
from trainshed.runs.states import Cause
from trainshed.runs.store_sync import StoreSync
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.load import load_job

_SOON = 120.0
"""Slurm warns of the time limit up to a minute earlier than it was asked to."""
_OWN_CAUSES = (Cause.RANK, Cause.TIMEOUT, Cause.HOOK, Cause.MEMORY, Cause.STAGING)
"""Causes that Slurm cannot know better."""
_SIGNALLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


@dataclass
class SlurmDriver(ClusterDriver):
    """Runs the attempts of a run in one Slurm job."""

    profile: Profile = field(default_factory=lambda: Profile.model_validate({}))
    slurm: Slurm = field(default_factory=Slurm)
    _hosts: list[str] = field(default_factory=list)
    _warning: float = float("inf")
    """When this driver warns its agents of Slurm's time limit, if Slurm has not done so before."""
    _log_from: int = 0
    """Where this start of the job begins in its log: what is before it is of earlier ones."""

    def drive(self) -> Outcome | None:
        with contextlib.suppress(OSError):
            self._log_from = (self.run.path / LOG).stat().st_size
        self._warning = self._warning_time()
        return super().drive()

    def allocation(self) -> tuple[str, str]:
        return os.environ["SLURM_JOB_NODELIST"], os.environ["SLURM_JOB_ID"]

    def question(self) -> Question:
        nodelist, job = self.allocation()
        wanted = self.job.resources
        self._hosts = self.slurm.hosts(nodelist)
        kind = DeviceKind.CPU if self.terms.emulate else wanted.kind
        listed = {node.get("NodeName", ""): node for node in self.slurm.nodes(",".join(self._hosts))}
        addresses = tuple(_resolve(listed.get(name, {}).get("NodeAddr", name), name) for name in self._hosts)
        indexes: tuple[tuple[int, ...], ...] = ()
        if kind is not DeviceKind.CPU:
            by_list = parse_devices(self.slurm.record(job), self.profile.gres_name(kind))
            by_name = {name: found for nodes, found in by_list.items() for name in self.slurm.hosts(nodes)}
            indexes = tuple(by_name.get(name, ()) for name in self._hosts)
        return Question(kind.value, wanted.devices, self.profile.interface or "", addresses, indexes)

    def open_step(self) -> ClusterStep:
        count = len(self._hosts)
        command = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--export=ALL"]
        command += ["--kill-on-bad-exit=0", "--wait=0", "--input=all", "--unbuffered"]
        if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
            command.append(f"--cpus-per-task={cpus}")
        variables = ("SLURM_NODEID", "SLURMD_NODENAME", "SLURM_CPUS_PER_TASK")
        return ClusterStep(
            [*command, *self.profile.srun, *starter.command(self.run.path, *variables)], self._hosts
        )

    def look(self) -> None:
        """A warning of Slurm's time limit may have come before this process could handle it."""
        if time.time() < self._warning:
            return
        self._warning = self._warning_time()  # the limit may have been moved
        if time.time() >= self._warning:
            self.request_stop(failure_of(JobState.TIMEOUT))

    def explain(self, stop: Failure) -> Failure:
        """The same signal is sent for a stop, for the end of the time limit, and when Slurm takes nodes away."""
        record, state = self._slurm_record()
        end = _seconds(record.get("EndTime", ""))
        if state is JobState.RUNNING and end is not None and end - time.time() < _SOON:
            return failure_of(JobState.TIMEOUT)
        return failure_of(state) if state.is_over and state is not JobState.COMPLETED else stop

    def conclude(self, outcome: Outcome) -> Outcome | None:
        failure = outcome.failure
        if failure is None or self.run.stop_reason():
            return outcome
        # Slurm signals ranks too when it ends a job: dying from it is not their own failure.
        if failure.cause in _OWN_CAUSES and failure.exit_code not in _SIGNALLED:
            return outcome
        record, state = self._slurm_record()
        if state.is_waiting or int(record.get("Restarts") or 0) > self.start:
            self.record.append(Pending(REQUEUED, self._attempt))
            return None
        if state.is_over and state not in (JobState.COMPLETED, JobState.FAILED):
            return Outcome.of(failure_of(state))
        return outcome

    def _warning_time(self) -> float:
        record, _ = self._slurm_record()
        end = _seconds(record.get("EndTime", ""))
        return float("inf") if end is None else end - self.job.grace - script.STOPPING

    def _slurm_record(self) -> tuple[dict[str, str], JobState]:
        """Slurm's fields of the job, and its state as far as it can be known while the job still ends."""
        try:
            record = parse_fields(self.slurm.record(self.allocation()[1]))
        except SlurmError:
            return {}, JobState.UNKNOWN
        state = state_of(record.get("JobState", ""))
        if state is JobState.COMPLETING:
            with contextlib.suppress(OSError), (self.run.path / LOG).open("rb") as log:
                log.seek(self._log_from)
                state = parse_notice(log.read().decode("utf-8", "replace")) or JobState.CANCELLED
        return record, state


def drive(run: RunDirectory, sync: StoreSync | None = None, access: Mapping[str, str] | None = None) -> int:
    """Run to the end; the job's exit code."""

    def make() -> SlurmDriver:
        job = load_job(run.path / "job.yaml")
        left = submission.read(run)
        profile = left.settings.profile
        # The site's variables reach every rank; the job's own win.
        job = job.model_copy(update={"env": profile.env | job.env})
        terms = Terms(
            scratch=script.local_disk(profile.scratch) / run.id,
            isolation=profile.isolation,
            container=profile.container or "podman",
            user=left.user,
            team=run.submission().team or "default",
            emulate=left.emulate,
            store=left.store,
            env=environment.job_env(os.environ),
            environ=dict(os.environ),
            process_env=environment.process_env(profile.cpus_per_device),
        )
        values = submission.secrets(run, bool(job.secrets or left.store))
        start = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        return SlurmDriver(run, job, terms, values, start, sync, access or {}, profile=profile)

    return finish(run, make, lambda: submission.forget(run))


def _resolve(address: str, name: str) -> str:
    """The IPv4 address of a node as Slurm knows it; else by its name."""
    for text in (address, name):
        with contextlib.suppress(OSError):
            return socket.gethostbyname(text)
    raise Failed(Failure(Cause.NODE, f"node {name}: neither {address!r} nor its name resolves to an address"))


def _seconds(stamp: str) -> float | None:
    try:
        return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


if __name__ == "__main__":
    guard.be_watched()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(drive(RunDirectory(Path(sys.argv[1]))))
