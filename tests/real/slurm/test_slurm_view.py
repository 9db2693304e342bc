"""A public script's view of the world on a real Slurm: every rank, torchrun's, Lightning's, TensorFlow's, MPI's."""

from __future__ import annotations

import json
import os
import sys

import pytest
from slurm_site import Site

from plan_comparison import BY_ALLOCATION, assert_same_plan
from support import ENVIRONMENTS, ROOT
from trainshed.runs.directory import RunDirectory
from trainshed.runs.states import RunState

sys.path.insert(0, str(ROOT / "tests/engines/slurm"))
import world_views

pytestmark = [pytest.mark.slurm, pytest.mark.real, pytest.mark.core, pytest.mark.field]

PRINT = "import json, os; print('view', json.dumps(dict(os.environ)))"


def _views(run: RunDirectory, pattern: str = "rank-*.log") -> list[dict[str, str]]:
    """The environments that processes printed, by rank."""
    found: dict[str, dict[str, str]] = {}
    for path in run.path.glob(f"node-*/{pattern}"):
        (line,) = [line for line in path.read_text().splitlines() if line.startswith("view ")]
        found[path.stem] = json.loads(line.removeprefix("view "))
    return [found[name] for name in sorted(found)]


def test_every_rank_sees_the_world_it_is_in(site: Site) -> None:
    run = site.submit(site.job(PRINT, launcher="pytorch", resources="2x2"))
    assert site.wait(run).state is RunState.SUCCEEDED, site.driver_log(run)
    views, names = _views(run), [node["name"] for node in run.plan_json()["nodes"]]
    expected = [(rank, 4, rank % 2, rank // 2, 2) for rank in range(4)]
    assert [world_views.torchrun(env) for env in views] == expected
    assert [world_views.lightning(env, devices=2, nodes=2) for env in views] == expected
    hosts = [names[0], names[0], names[1], names[1]]
    assert [world_views.tensorflow(env) for env in views] == [(rank, hosts) for rank in range(4)]
    assert [env["SLURMD_NODENAME"] for env in views] == hosts
    for env in views:
        assert world_views.mpi_is_singleton(env), sorted(env)
        assert env["SLURM_JOB_ID"] == site.number(run) and world_views.main_address(env) == names[0]
        known = {name for name in env if name.startswith("SLURM")}
        assert known == {name for name in views[0] if name.startswith("SLURM")}


def test_a_command_and_what_it_starts_do_not_take_the_nodes_task_for_a_world(site: Site) -> None:
    command = f'{sys.executable} -c "{PRINT}"'
    run = site.submit(site.job("", entry=None, command=command, resources="2x2"))
    assert site.wait(run).state is RunState.SUCCEEDED, site.driver_log(run)
    views = _views(run, "node-*.log")
    assert [env["SLURM_NODEID"] for env in views] == ["0", "1"]
    assert all(world_views.mpi_is_singleton(env) and "SLURM_NTASKS" not in env for env in views)


def test_torchrun_inside_a_command_makes_the_same_world(site: Site) -> None:
    if not (ENVIRONMENTS / "pytorch").exists():
        pytest.skip("trainshed env create pytorch")
    script = (
        "import json, os\n"
        "path = os.environ['TRAINSHED_METRICS_DIR'] + '/view-' + os.environ['RANK'] + '.txt'\n"
        "open(path, 'w').write('view ' + json.dumps(dict(os.environ)))\n"
    )
    job = site.job(
        script,
        entry=None,
        command="torchrun main.py",
        launcher="pytorch",
        environment="pytorch",
        resources="2x2",
    )
    run = site.submit(job)
    assert site.wait(run, 150).state is RunState.SUCCEEDED, site.driver_log(run)
    views = _views(run, "view-*.txt")
    assert [world_views.torchrun(env)[:3] for env in views] == [(r, 4, r % 2) for r in range(4)]
    assert not any("SLURM_NTASKS" in env for env in views), "Lightning must choose torchrun's world here"


def test_a_home_with_blanks_and_signs_works_on_the_cluster(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = site.folder / 'my 50%j home\'s "x"'
    home.mkdir()
    monkeypatch.setenv("TRAINSHED_HOME", str(home))
    run = site.submit(site.job("print('fine')", resources="2x1"))
    assert site.wait(run).state is RunState.SUCCEEDED, site.driver_log(run)
    assert run.path.parent == home / "runs" and "fine" in (run.node(1) / "rank-1.log").read_text()
    assert (run.path / "driver.log").exists()


def test_a_low_priority_is_nice_and_a_preemptible_run_starts_again(site: Site) -> None:
    run = site.submit(site.job("print('fine')", resources="1x1", priority=40, preemptible=True), requeue="no")
    record = site.cluster.ask("scontrol", "show", "job", site.number(run))
    assert "Nice=60" in record and "Requeue=1" in record
    assert site.wait(run).state is RunState.SUCCEEDED
    assert any("preemptible" in note for note in run.notes())


RECORDER = """#!/bin/bash
cat > "{folder}/script"
printf '%s\\n' "$@" > "{folder}/arguments"
exec {sbatch} "$@" < "{folder}/script"
"""


def test_what_a_dry_run_printed_is_what_was_launched(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch script word for word, but for the run's name; the plan but for what the allocation decides."""
    folder = site.folder / "recorder"
    folder.mkdir()
    (folder / "sbatch").write_text(RECORDER.format(folder=folder, sbatch="/usr/bin/sbatch"))
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    job = site.job(PRINT, launcher="pytorch", resources="2x2", priority=50, env={"MARK": "x"})
    client = site.client
    request = client.request(job, options={"time": "1h"})
    printed = client.plan(request, "slurm")
    assert not list((client.home / "runs").glob("*")), "a dry run leaves nothing"
    (started,) = client.start(request, "slurm")
    run = started.directory
    assert (folder / "script").read_text() == printed.text.replace(f"{job.name}-preview", run.id)
    assert not any("time" in word or "nice" in word for word in (folder / "arguments").read_text().split())
    assert site.wait(run).state is RunState.SUCCEEDED, site.driver_log(run)
    names = (f"{job.name}-preview", run.id)
    assert_same_plan(json.loads(json.dumps(printed.plan.to_json())), run.plan_json(), names, BY_ALLOCATION)


COUNTER = """#!/bin/bash
echo "$@" >> "{file}"
exec {real} "$@"
"""


def test_two_hundred_runs_are_polled_with_one_squeue(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = site.job("", "held", resources="1x1", code=None, entry=None, command="true")
    site.cluster.ask("scontrol", "update", "PartitionName=low", "State=DOWN")
    try:
        started = list(site.client.start_each([site.request(job)] * 200, "slurm"))
        folder = site.folder / "counter"
        folder.mkdir()
        for name in ("squeue", "sacct", "scontrol", "sinfo"):
            (folder / name).write_text(COUNTER.format(file=folder / "asked", real=f"/usr/bin/{name}"))
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        site.engine._queried.clear()
        found = list(site.client.summaries())
        assert [summary.state for summary in found] == [RunState.PENDING] * len(started)
        (asked,) = (folder / "asked").read_text().splitlines()
        assert "--states=all" in asked
        site.cluster.ask("scancel", f"--user={os.getuid()}")
        site.engine._queried.clear()
        (folder / "asked").unlink()
        assert {summary.state for summary in site.client.summaries()} == {RunState.STOPPED}
        assert len((folder / "asked").read_text().splitlines()) <= 2, "and one sacct for all that have ended"
    finally:
        site.cluster.ask("scontrol", "update", "PartitionName=low", "State=UP")


def test_a_run_of_another_release_does_not_hide_the_others(site: Site) -> None:
    good = site.submit(site.job("print('fine')", resources="1x1"))
    bad = site.submit(site.job("print('fine')", resources="1x1"))
    site.wait(good), site.wait(bad)
    (bad.path / "events/end.jsonl").unlink()
    first, *rest = (bad.path / "events/submit.jsonl").read_text().splitlines(keepends=True)
    first = json.dumps(json.loads(first) | {"settings": {"unheard": 1}}) + "\n"
    (bad.path / "events/submit.jsonl").write_text("".join([first, *rest]))
    states = {summary.id: summary for summary in site.client.summaries()}
    assert states[good.id].state is RunState.SUCCEEDED and "another release" in states[bad.id].reason
