"""One pass of the queue with 10,000 waiting jobs, every one with its reason, against only sorting the same jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from races.harness import Race, Side
from trainshed.server.queue.model import QueueState, RunningJob, TeamQuota, WaitingJob
from trainshed.server.queue.rules import decide
from trainshed.spec.kinds import DeviceKind

WAITING, TEAMS, DEVICES, NOW = 10_000, 8, 16, 1e6
NPU = DeviceKind.ASCEND


def busy_machine() -> QueueState:
    """A machine on which regular jobs find preemptible ones, so that a pass has to use all of its rules."""
    random = Random(1)
    waiting = [
        WaitingJob(
            f"job-{number:05}", f"team-{random.randrange(TEAMS)}", "user", NPU, random.choice([1, 1, 2]),
            NOW - random.random() * 1e5, random.choice([90, 100, 120]), random.random() < 0.5,
            random.choice([None, 600.0, 3600.0]),
        )
        for number in range(WAITING)
    ]  # fmt: skip
    running = [
        RunningJob(
            f"run-{number:05}", f"team-{number % TEAMS}", "user", NPU, 1, NOW - 100, limit=3600.0,
            preemptible=number % 2 == 0,
        )
        for number in range(DEVICES - 3)
    ]  # fmt: skip
    teams = tuple(TeamQuota(f"team-{number}", {NPU: DEVICES // TEAMS}) for number in range(TEAMS))
    return QueueState(NOW, {NPU: DEVICES}, teams, tuple(waiting), tuple(running))


STATE = busy_machine()


def one_pass() -> None:
    decision = decide(STATE)
    if not decision.preemptions or len(decision.starts) + len(decision.reasons) != WAITING:
        raise RuntimeError("the pass did not decide about every job")


def sorting() -> None:
    sorted(STATE.waiting, key=lambda job: (job.queued - 3600.0 * job.priority, job.id))


def milliseconds(work: Callable[[], None]) -> Side:
    """CPU time, the least of five: what the work takes, whoever else uses the machine."""

    def side(folder: Path) -> float:
        spent = []
        for _ in range(5):
            began = time.process_time()
            work()
            spent.append(time.process_time() - began)
        return min(spent) * 1000

    return side


RACES = [
    Race(
        "queue-10000",
        milliseconds(one_pass),
        {"sorting": milliseconds(sorting)},
        rounds=9,
        least=0.2,
        unit="ms",
    )
]
