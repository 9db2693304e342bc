"""Runs whose nodes share no file system: everything travels through an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from slurm_site import Site

from support import until
from trainshed import store
from trainshed.access import StoreAccess
from trainshed.engines.slurm.profile import save
from trainshed.engines.slurm.script import local_disk
from trainshed.errors import RefusedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.states import RunState
from trainshed.store.seaweed import embedded

pytestmark = [pytest.mark.slurm, pytest.mark.real]

URL = "s3://cluster/runs"
SUM = """
import argparse, os
import torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--notes")
parser.add_argument("--model")
given = parser.parse_args()
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank())])
dist.all_reduce(value)
print("sum", value.item(), "of", dist.get_world_size(), open(given.notes + "/notes.txt").read(), flush=True)
print("key", os.environ["PASSWORD"], flush=True)
with open(f"{given.model}/model-{dist.get_rank()}", "w") as file:
    file.write("weights")
"""
ENDLESS = """
import time
print("working", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def apart(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site whose nodes know the home of the submitting machine only through a store."""
    shop = embedded.ensure_running(tmp_path / "shop")
    for name, value in shop.credentials.environment().items():
        monkeypatch.setenv(name, value)
    with store.api.connected(store.parse_url(URL), _keys()) as client:
        client.create_bucket("cluster")
    save("slurm", {"runs": URL, "scratch": str(tmp_path / "disk")}, site.client.home)
    (tmp_path / "disk").mkdir()
    yield site
    embedded.stop(tmp_path / "shop")


@contextmanager
def out_of_sight(site: Site) -> Iterator[None]:
    """Nothing of the submitting machine is there: neither its home nor the job's folders."""
    hidden = site.folder / "hidden"
    hidden.mkdir()
    shown = [path for path in site.folder.iterdir() if path.name == "home" or path.name.startswith("code-")]
    for path in shown:
        path.rename(hidden / path.name)
    try:
        yield
    finally:
        for path in shown:
            (hidden / path.name).rename(path)
        hidden.rmdir()


def _keys() -> store.Credentials:
    """Those of the submitting shell."""
    return StoreAccess.from_environment(os.environ, Path("/nowhere")).credentials("s3")


def _in_store(run: RunDirectory, name: str) -> str:
    try:
        return store.read_bytes(f"{URL}/{run.id}/{name}", credentials=_keys()).decode()
    except store.ObjectNotFoundError:
        return ""


def _left(site: Site) -> list[Path]:
    disk = local_disk(str(site.folder / "disk"))
    carried = [path for path in disk.glob("carried*/*") if path.is_dir()]
    return [
        *carried,
        *disk.glob("home/submissions/*"),
        *disk.parent.glob("*.driver.log"),
        *disk.glob("job-*"),
    ]


def test_a_run_goes_through_the_store_and_leaves_nothing_on_the_nodes(
    apart: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "code-notes"
    notes.mkdir()
    (notes / "notes.txt").write_text("from the laptop")
    monkeypatch.setenv("MY_PASSWORD", "hunter2hunter2")
    job = apart.job(
        SUM,
        launcher="pytorch",
        environment="pytorch",
        resources="2x2",
        inputs=[{"name": "notes", "source": str(notes)}],
        outputs=[{"name": "model"}],
        secrets={"PASSWORD": {"env": "MY_PASSWORD"}},
    )
    apart.cluster.ask("scontrol", "update", "PartitionName=low", "State=DOWN")
    try:
        run = apart.submit(job)
    except BaseException:
        apart.cluster.ask("scontrol", "update", "PartitionName=low", "State=UP")
        raise
    with out_of_sight(apart):
        apart.cluster.ask("scontrol", "update", "PartitionName=low", "State=UP")
        until(lambda: '"finished"' in _in_store(run, "events/end.jsonl"), 90.0, "the end in the store")
    ended = apart.wait(run)
    assert ended.state is RunState.SUCCEEDED, apart.driver_log(run)
    for rank in range(4):
        (log,) = run.path.glob(f"node-*/rank-{rank}.log")
        assert "sum 6.0 of 4 from the laptop" in log.read_text()
        assert "hunter2" not in log.read_text()
    assert len(list(run.path.glob("outputs/**/model-*"))) == 4
    assert len(list(run.path.glob("node-*/metrics.jsonl"))) == 2
    for entry in store.list_tree(f"{URL}/{run.id}/", credentials=_keys()):
        assert "hunter2" not in _in_store(run, entry.name), entry.name
    until(lambda: not _left(apart), 20.0, lambda: f"clean disks ({_left(apart)})")
    apart.remove(run)
    assert not store.exists(f"{URL}/{run.id}/", credentials=_keys())


def test_a_stop_reaches_nodes_that_only_the_store_connects(apart: Site) -> None:
    run = apart.submit(apart.job(ENDLESS, grace=2))
    apart.wait_log(run, "working")
    apart.stop(run, "enough of it")
    ended = apart.wait(run)
    assert (ended.state, ended.reason) == (RunState.STOPPED, "enough of it"), apart.driver_log(run)
    until(lambda: not _left(apart), 20.0, lambda: f"clean disks ({_left(apart)})")


def test_a_failing_rank_is_named_with_its_last_words(apart: Site) -> None:
    script = "import os, sys, time\nprint('my last words', flush=True)\n"
    script += "sys.exit(7) if os.environ['TRAINSHED_RANK'] == '1' else time.sleep(60)\n"
    ended = apart.wait(apart.submit(apart.job(script)))
    assert ended.outcome and ended.outcome.failure
    assert (ended.state, ended.exit_code) == (RunState.FAILED, 7)
    assert "my last words" in ended.outcome.failure.last_lines


def test_a_job_put_back_into_the_queue_goes_on_from_the_store(apart: Site) -> None:
    run = apart.submit(apart.job(ENDLESS, grace=2))
    apart.wait_log(run, "working")
    apart.cluster.ask("scontrol", "requeue", apart.number(run))
    until(lambda: apart.state(run).attempt == 2 and apart.state(run).state is RunState.RUNNING, 90.0)
    kept = "node-1/rank-1.attempt-1.log"  # each node brings its part when its turn comes
    until(lambda: apart.state(run) and list(run.path.glob(kept)), 20.0, lambda: str([*run.path.rglob("*")]))
    apart.stop(run, "seen")
    assert apart.wait(run).state is RunState.STOPPED


def test_what_only_this_machine_has_is_refused_as_a_target(apart: Site, tmp_path: Path) -> None:
    job = apart.job(ENDLESS, outputs=[{"name": "model", "target": str(tmp_path / "here")}])
    with pytest.raises(RefusedError, match="folder of this machine"):
        apart.submit(job)
    assert not list((tmp_path / "home" / "runs").iterdir())


def test_a_job_with_an_image_runs_on_nodes_that_share_nothing(apart: Site, image: str) -> None:
    fields = {"entry": None, "command": "echo in $TRAINSHED_NODE", "image": image}
    run = apart.submit(apart.job("", **fields), container="podman")
    ended = apart.wait(run)
    assert ended.state is RunState.SUCCEEDED, (ended.reason, apart.driver_log(run))
    assert [(run.node(i) / f"node-{i}.log").read_text() for i in (0, 1)] == ["in 0\n", "in 1\n"]
