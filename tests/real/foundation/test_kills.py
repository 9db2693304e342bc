"""`kill -9` of each kind of process at random moments: a true final state, no orphan, bounded time."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from killing import kinds

from support import Shed, processes_of, until

pytestmark = [pytest.mark.foundation, pytest.mark.real]

TRIALS = 50
CODE = (
    "import subprocess, time\n"
    "subprocess.Popen(['sleep', '300'])\n"
    "subprocess.Popen(['setsid', 'sleep', '301'])\n"
    "print('up', flush=True)\ntime.sleep(300)\n"
)


def trial(shed: Shed, job: object, seed: int) -> tuple[str, str]:
    choice = random.Random(seed)
    run = shed.submit(job)  # type: ignore[arg-type]
    if seed % 2:
        until(lambda: "rank" in kinds(run), 30, "a rank")
    time.sleep(choice.random() * 1.5)
    victims = {kind: pids for kind, pids in kinds(run).items() if kind not in ("grandchild", "guard")}
    assert victims, "the driver lives at least"
    kind = choice.choice(sorted(victims))
    try:
        os.kill(choice.choice(victims[kind]), signal.SIGKILL)
    except ProcessLookupError:
        pytest.fail("nothing ends by itself here")
    done = shed.cli("wait", run, "--json", "--timeout", "60")
    summary = json.loads(done.stdout)
    what = f"trial {seed}: {kind} killed, run {run}: {summary['state']}, {summary['reason']}"
    assert summary["state"] in ("failed", "lost"), what
    assert summary["reason"], what
    if kind == "rank":
        assert summary["failure"]["cause"] == "rank" and "SIGKILL" in summary["reason"], what
    until(lambda: not processes_of(run), 5, lambda: f"{what}: left behind {processes_of(run)}: their end")
    assert shed.show(run)["state"] == summary["state"], "a final state stays"
    return kind, summary["state"]


@pytest.mark.timeout(600)
def test_killing_any_process_at_any_moment_ends_the_run_truly(shed: Shed) -> None:
    job = shed.job("kill", {"t.py": CODE}, entry="t.py", resources="2x2")
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda seed: trial(shed, job, seed), range(TRIALS)))
    assert {kind for kind, _ in results} >= {"rank", "agent", "coordinator", "driver", "sandbox"}
    print(f"{len(results)} trials: {sorted(results)}")


@pytest.mark.parametrize("order", [("driver", "coordinator"), ("coordinator", "driver")])
def test_driver_and_coordinator_killed_together_still_end_the_run(shed: Shed, order: tuple[str, str]) -> None:
    job = shed.job("kill", {"t.py": CODE}, entry="t.py", resources="2x1")
    run = shed.submit(job)
    found = until(lambda: (now := kinds(run)).keys() >= {*order, "rank", "agent"} and now, 30, "all of it")
    for pid in (pid for kind in order for pid in found[kind]):
        with contextlib.suppress(ProcessLookupError):  # the first one's end may be the second's
            os.kill(pid, signal.SIGKILL)
    summary = json.loads(shed.cli("wait", run, "--json", "--timeout", "30").stdout)
    assert summary["state"] == "failed" and "node 0" in summary["reason"]
    until(lambda: not processes_of(run), 10, lambda: f"the end of {processes_of(run)}")


@pytest.mark.parametrize("kind", ["rank", "agent", "coordinator", "driver"])
def test_without_a_sandbox_the_end_is_as_true(shed: Shed, kind: str) -> None:
    job = shed.job("kill", {"t.py": CODE}, entry="t.py", resources="2x1")
    run = shed.submit(job, "-o", "isolation=plain")
    until(
        lambda: len(kinds(run).get("rank", ())) == 2 and len(kinds(run).get("grandchild", ())) == 4, 30, "all"
    )
    found = kinds(run)
    os.kill(found[kind][0], signal.SIGKILL)
    summary = json.loads(shed.cli("wait", run, "--json", "--timeout", "30").stdout)
    assert summary["state"] in ("failed", "lost"), summary
    until(lambda: not processes_of(run), 10, lambda: f"the end of {processes_of(run)}")


@pytest.mark.hardening
@pytest.mark.parametrize(
    "pair", [("driver", "coordinator"), ("driver", "agent"), ("guard", "coordinator"), ("guard", "driver")]
)
def test_without_a_sandbox_two_killed_together_leave_nothing(shed: Shed, pair: tuple[str, str]) -> None:
    job = shed.job("kill", {"t.py": CODE}, entry="t.py", resources="2x1")
    run = shed.submit(job, "-o", "isolation=plain")
    until(lambda: len(kinds(run).get("grandchild", ())) == 4 and "guard" in kinds(run), 30, "all")
    found = kinds(run)
    for pid in [found[kind][0] for kind in pair]:
        os.kill(pid, signal.SIGKILL)
    summary = json.loads(shed.cli("wait", run, "--json", "--timeout", "60").stdout)
    assert summary["state"] in ("failed", "lost"), summary
    until(lambda: not processes_of(run), 20, lambda: f"the end of {processes_of(run)}")


@pytest.mark.hardening
def test_a_run_goes_on_without_its_guard(shed: Shed) -> None:
    job = shed.job("guarded", {"t.sh": "while [ ! -e go ]; do sleep 0.05; done; echo on"}, entry="t.sh")
    run = shed.submit(job, "-o", "isolation=plain")
    until(
        lambda: kinds(run).keys() >= {"guard", "driver"} and list(shed.path(run).glob("node-0/rank-0.log")),
        30,
    )
    os.kill(kinds(run)["guard"][0], signal.SIGKILL)
    assert shed.show(run)["state"] == "running"
    (cwd,) = {
        Path(f"/proc/{pid}/cwd").readlink() for pid, line in processes_of(run).items() if "t.sh" in line
    }
    (cwd / "go").touch()
    assert json.loads(shed.cli("wait", run, "--json", "--timeout", "60").stdout)["state"] == "succeeded"
