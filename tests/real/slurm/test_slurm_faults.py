"""What goes wrong on a cluster: always a true state, in bounded time, with no process left."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from slurm_site import Site

from support import processes_of, until
from trainshed.runs.events import Kind
from trainshed.runs.states import Cause, RunState

pytestmark = [pytest.mark.slurm, pytest.mark.real]

ONCE = """
import os, time
print("working", os.environ["TRAINSHED_NODE_ADDRESS"], flush=True)
if os.path.exists(os.environ["MARKS"] + "/mark"):
    raise SystemExit(0)
time.sleep(600)
"""
SAVING = """
import os, signal, sys, time
def leave(*_):
    open(os.environ["TRAINSHED_OUTPUT_DIR"] + "/saved", "w")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("working", flush=True)
time.sleep(600)
"""


def _endless(site: Site, **fields: Any) -> Any:
    """A job whose ranks end only when a later attempt finds the mark in a folder that it sees."""
    marks = str(site.folder / "marks")
    return site.job(ONCE, env={"MARKS": marks}, outputs=[{"name": "marks", "target": marks}], **fields)


def test_preemption_starts_a_run_again_with_a_fresh_plan(site: Site) -> None:
    run = site.submit(_endless(site, resources="4x1"), exclusive="yes")
    site.wait_log(run, "working")
    planned = (run.path / "plan.json").stat().st_mtime_ns
    (site.folder / "marks" / "mark").touch()
    first = site.submit(
        site.job("print('I am first')", "urgent", resources="4x1"), exclusive="yes", partition="high"
    )
    assert site.wait(first).state is RunState.SUCCEEDED
    until(lambda: site.state(run).state in (RunState.PENDING, RunState.SUCCEEDED), 30, "requeued")
    if site.state(run).state is RunState.PENDING:
        site.cluster.look("scontrol", "update", f"JobId={site.number(run)}", "StartTime=now")
    ended = site.wait(run)
    assert (ended.state, ended.attempt) == (RunState.SUCCEEDED, 2), site.driver_log(run)
    kinds = [event.kind for event in run.events()]
    assert Kind.PENDING in kinds and kinds.count(Kind.FINISHED) == 1
    assert (run.path / "plan.json").stat().st_mtime_ns > planned and (
        run.node(0) / "rank-0.attempt-1.log"
    ).exists()


def test_a_restarted_controller_changes_nothing(own_site: Site) -> None:
    site = own_site
    run = site.submit(_endless(site))
    site.wait_log(run, "working")
    site.cluster.kill("slurmctld")
    try:
        site.engine._queried.clear()
        now = site.state(run)
        assert now.state is RunState.RUNNING and "not known now" in now.reason, (
            "not to be reached is not gone"
        )
    finally:
        site.cluster.start_controller()
    until(lambda: "UP" in site.cluster.look("scontrol", "ping"), 30, "the controller")
    site.stop(run, "the controller is back")
    ended = site.wait(run, 40)
    assert (ended.state, ended.reason) == (RunState.STOPPED, "the controller is back")


def test_dead_hosts_and_the_time_limit_always_end_in_a_true_state(site: Site) -> None:
    """Three runs at once, since Slurm takes its time to notice.

    The host of the first one's driver dies: it starts again. The second loses a
    slurmd and may not start again: it fails. The third reaches its time limit.
    """
    again = site.submit(_endless(site, name="again"), nodelist="node1,node2")
    lost = site.submit(_endless(site, name="lost"), nodelist="node3,node4", requeue="no")
    job = site.job(SAVING, "late", outputs=[{"name": "out"}], resources="1x1", grace=1)
    late = site.submit(job, time="1m", nodelist="node3")
    for run in (again, lost, late):
        site.wait_log(run, "working")
    (site.folder / "marks" / "mark").touch()
    dead = [again.plan_json()["nodes"][0]["name"], lost.plan_json()["nodes"][1]["name"]]
    assert dead == ["node1", "node4"]
    for name in dead:
        site.cluster.kill(name)
    _kill_processes_on(site, "node1")
    try:
        ended = site.wait(late, 90)
        assert (ended.state, ended.exit_code) == (RunState.FAILED, 124), site.driver_log(late)
        assert "time limit" in ended.reason and (late.path / "outputs/node-0/out/saved").exists()
        ended = site.wait(lost, 90)
        assert ended.state is RunState.FAILED, site.driver_log(lost)
        assert ended.outcome and ended.outcome.failure and ended.outcome.failure.cause is Cause.NODE
        until(lambda: site.state(again).state is RunState.PENDING, 90, "requeued")
    finally:
        for name in dead:
            site.cluster.start_node(name)
    site.cluster.ask("scontrol", "update", f"JobId={site.number(again)}", "StartTime=now")
    ended = site.wait(again, 90)
    assert (ended.state, ended.attempt) == (RunState.SUCCEEDED, 2), site.driver_log(again)


def _kill_processes_on(site: Site, node: str) -> None:
    """Everything a host's death takes with it: Slurm's own step processes and all below them.

    The former first: otherwise they would live to report the death of the latter.
    """
    steps, others = [], []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            variables = (entry / "environ").read_bytes() if line else b""
        except OSError:
            continue
        if line.startswith(b"slurmstepd") and _is_of(entry, site, node):
            steps.append(int(entry.name))
        elif (
            str(site.cluster.folder).encode() in variables
            and f"SLURMD_NODENAME={node}\0".encode() in variables
        ):
            others.append(int(entry.name))
    assert steps and others
    for pid in steps + others:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _is_of(entry: Path, site: Site, node: str) -> bool:
    """Whether a slurmstepd belongs to a node: it works in that node's spool folder. Other tests' clusters live on."""
    try:
        seen = [os.readlink(entry / "cwd"), *(os.readlink(link) for link in (entry / "fd").iterdir())]  # noqa: PTH115
    except OSError:
        return False
    own = [path for path in seen if path.startswith(f"{site.cluster.folder}/")]
    return any(f"/spool/{node}" in path or f"slurmd-{node}.log" in path for path in own)


@pytest.mark.hardening
def test_a_frozen_agent_ends_the_run_with_its_reason(site: Site) -> None:
    run = site.submit(_endless(site))
    site.wait_log(run, "working")
    frozen = [
        pid
        for pid, line in processes_of(run.id).items()
        if "trainshed.agent.main" in line and line.rstrip().endswith("--node 0") and "bwrap" not in line
    ]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    assert frozen
    ended = site.wait(run, 150)
    assert ended.state is RunState.FAILED and ended.failure and ended.failure.cause is Cause.NODE
    assert "sent nothing" in ended.reason or "no message from" in ended.reason, ended.reason
