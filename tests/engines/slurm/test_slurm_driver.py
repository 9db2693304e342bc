"""What the driver concludes from Slurm's record of its job, without a cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.engines.cluster import driver as cluster_driver
from trainshed.engines.cluster.driver import Terms
from trainshed.engines.slurm.client import Slurm, SlurmError
from trainshed.engines.slurm.driver import SlurmDriver
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import AttemptFinished, Pending
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm, pytest.mark.core]


class _Controller(Slurm):
    """A controller that says what a test wants."""

    def __init__(self, state: str = "RUNNING", minutes: float = 60, restarts: int = 0) -> None:
        super().__init__()
        self.state, self.minutes, self.restarts = state, minutes, restarts

    def record(self, job: str) -> str:
        if not self.state:
            raise SlurmError("no answer")
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + self.minutes * 60))
        return f"JobId={job} JobState={self.state} Restarts={self.restarts} EndTime={end}"


@pytest.fixture(autouse=True)
def _job_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")


def _driver(tmp_path: Path, slurm: Slurm, **fields: Any) -> SlurmDriver:
    job = load_job({"name": "job", "command": "true", "grace": 10} | fields)
    return SlurmDriver(RunDirectory(tmp_path), job, Terms(tmp_path / "scratch"), {}, slurm=slurm)


def test_the_driver_warns_of_the_time_limit_by_itself_and_of_a_moved_one_later(tmp_path: Path) -> None:
    slurm = _Controller(minutes=0.5)
    driver = _driver(tmp_path, slurm)
    driver._warning = time.time() - 1
    slurm.minutes = 60
    driver.look()
    assert driver._stop is None, "somebody gave the job more time"
    slurm.minutes = 0.5
    driver._warning = time.time() - 1
    driver.look()
    assert driver._stop and driver._stop.cause is Cause.TIMEOUT


def test_a_job_without_a_limit_is_never_warned(tmp_path: Path) -> None:
    driver = _driver(tmp_path, _Controller(state=""))
    assert driver._warning_time() == float("inf")


def test_the_jobs_own_timeout_is_kept_when_its_coordinator_hangs(tmp_path: Path) -> None:
    driver = _driver(tmp_path, _Controller(), timeout=5)
    driver._keep_timeout(44)
    assert driver._stop is None
    driver._keep_timeout(46)
    assert driver._stop and driver._stop.cause is Cause.TIMEOUT


@pytest.mark.parametrize(
    ("state", "minutes", "cause"),
    [
        ("RUNNING", 60, Cause.STOP),
        ("RUNNING", 1, Cause.TIMEOUT),
        ("PREEMPTED", 60, Cause.PREEMPTED),
        ("NODE_FAIL", 60, Cause.NODE),
        ("", 60, Cause.STOP),
    ],
)
def test_a_signal_is_explained_by_what_slurm_says(
    tmp_path: Path, state: str, minutes: float, cause: Cause
) -> None:
    driver = _driver(tmp_path, _Controller(state, minutes))
    assert driver.explain(Failure(Cause.STOP, "stopped by SIGTERM")).cause is cause


def test_a_run_that_slurm_put_back_has_not_ended(tmp_path: Path) -> None:
    driver = _driver(tmp_path, _Controller("PENDING", restarts=1))
    assert driver.conclude(Outcome.of(Failure(Cause.STOP, "stopped by SIGTERM"))) is None
    (event,) = driver.run.events("driver-")
    assert isinstance(event.body, Pending)
    own = Outcome.of(Failure(Cause.RANK, "rank 1 exited with 3", exit_code=3))
    assert driver.conclude(own) is own, "what a rank did by itself Slurm cannot know better"
    by_signal = Outcome.of(Failure(Cause.RANK, "rank 1 was killed by SIGTERM", exit_code=143))
    assert driver.conclude(by_signal) is None


@pytest.mark.hardening
def test_a_killed_launcher_is_named_and_a_success_recorded_after_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_driver, "_ORPHANED", 0.1)
    driver = _driver(tmp_path, _Controller(), grace=0.1)
    driver._attempt = 1
    killed = driver._outcome(-9).failure
    assert killed and killed.reason == "the cluster's launcher was killed by SIGKILL"
    gone = Outcome.of(Failure(Cause.DRIVER, "the run's driver process is gone (it was killed)"))
    driver.run.writer("coordinator-1").append(AttemptFinished(1, gone))
    named = driver._outcome(-9).failure
    assert named and "launcher" in named.reason, "the driver lives: it was not that"
    driver._attempt = 2
    driver.run.writer("coordinator-2").append(AttemptFinished(2, Outcome.of(None)))
    assert driver._outcome(-9).failure is None
