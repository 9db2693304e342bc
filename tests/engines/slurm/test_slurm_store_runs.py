"""Runs that are in an object store: one that was removed there, or cannot be reached, hides no other."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed import Client
from trainshed.engines.slurm import engine as slurm
from trainshed.engines.slurm.client import Slurm
from trainshed.engines.slurm.states import JobState, QueueEntry
from trainshed.runs import locations, store_sync
from trainshed.runs.directory import RunDirectory, finished
from trainshed.runs.events import Accepted, Submitted
from trainshed.runs.locations import RunLocation
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.slurm, pytest.mark.core]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands for the object store: a folder, under the same code."""
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(slurm, "_FRESH", -1.0)
    monkeypatch.setattr(Slurm, "accounted", lambda _self, _jobs: {})
    _knows(monkeypatch, "a", "b")
    return tmp_path / "shop"


def _knows(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    entries = [
        QueueEntry(str(i), str(i), None, JobState.RUNNING, "None", "", "", "n1", f"trainshed:{name}")
        for i, name in enumerate(names)
    ]
    monkeypatch.setattr(Slurm, "jobs", lambda _self: entries)


def _run(shop: Path, name: str) -> RunDirectory:
    run = RunDirectory(Client().home / "runs" / name)
    run.path.mkdir(parents=True)
    url = f"file://{shop}/runs/{name}"
    run.writer("submit").append(Submitted(name=name, engine="slurm", shape="1x1", settings={"settings": {}}))
    run.writer("submit").append(Accepted("7"))
    run.write("job.yaml", "name: job\ncommand: 'true'\n")
    locations.make_mirror(run, RunLocation(url=url))
    store_sync.publish_submission(run, url, None)
    return run


def test_a_run_removed_elsewhere_hides_no_other_and_can_be_removed(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, good = _run(shop, "a"), _run(shop, "b")
    shutil.rmtree(shop / "runs/a")
    client = Client()
    seen = {summary.id: summary for summary in client.summaries()}
    assert {name: summary.state for name, summary in seen.items()} == dict.fromkeys("ab", RunState.PENDING)
    assert "though its engine still has it" in seen["a"].reason and not seen["b"].reason

    _knows(monkeypatch, "b")
    seen = {summary.id: summary for summary in client.summaries()}
    assert seen["a"].state is RunState.FAILED and "it was removed from file://" in seen["a"].reason
    assert seen["b"].state is RunState.PENDING and not good.end()
    assert not (shop / "runs/a").exists(), "nothing is brought to where the run is no more"
    listed = subprocess.run(
        [sys.executable, "-m", "trainshed.cli.main", "ps", "-a"], capture_output=True, text=True, timeout=60
    )
    assert listed.returncode == 0 and {"a", "b"} <= {line.split()[0] for line in listed.stdout.splitlines()}
    client.remove(client.get("a"))
    assert not gone.path.exists() and not (shop / "runs/a").exists()


def test_the_store_is_reached_with_the_clients_own_keys(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-process")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-process")
    run = _run(shop, "a")
    locations.make_mirror(run, RunLocation(url="s3://cluster/runs/a"))
    seen: list[str] = []
    monkeypatch.setattr(store_sync, "pull", lambda _run, _url, keys: seen.append(keys.access_key))
    own = {
        "AWS_ACCESS_KEY_ID": "ann", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    Client.from_environment(own, Client().home).get("a").refresh()
    assert seen == ["ann"]


def test_a_store_that_fails_when_an_end_is_brought_there_hides_no_run(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(shop, "a")
    _run(shop, "b")
    shutil.rmtree(shop)
    shop.write_text("not a folder any more")
    _knows(monkeypatch, "b")
    states = {summary.id: summary.state for summary in Client().summaries()}
    assert set(states) == {"a", "b"} and states["b"] is RunState.PENDING


def test_the_end_in_the_store_becomes_the_runs_with_all_that_came_before(shop: Path) -> None:
    run = _run(shop, "a")
    there = RunDirectory(shop / "runs/a")
    there.node(0).mkdir()
    (there.node(0) / "rank-0.log").write_text("last words\n")
    there.record_end(finished(there, Outcome.of(None), None, 1))
    handle = Client().get("a")
    assert handle.state is RunState.SUCCEEDED
    assert (run.node(0) / "rank-0.log").read_text() == "last words\n"
    assert [line.text for line in handle.logs()] == ["last words"]
