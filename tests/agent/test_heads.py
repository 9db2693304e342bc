"""Heads of a node's files on their way into the chain, whatever the job or the disk does meanwhile."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from support import until
from trainshed.agent import heads
from trainshed.agent.coordinator import Coordinator, Limits
from trainshed.agent.heads import HeadKeeper, heads_of
from trainshed.agent.link import Link
from trainshed.agent.reports import Reports
from trainshed.runs import chain
from trainshed.runs.chain import ChainWriter, Head, path_of
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.foundation, pytest.mark.hardening]
SECRET = b"secret"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (made,) = Runs(tmp_path).create("job")
    for name in ("events", "node-0/reports", "node-1/reports"):
        (made.path / name).mkdir(parents=True)
    return made


def digest(data: bytes) -> Head:
    return Head(len(data), hashlib.sha256(data).hexdigest())


def looked(keeper: HeadKeeper) -> dict[str, Head]:
    keeper.look()
    return {name: head for message in keeper.messages() for name, head in heads_of(message).items()}


def test_only_what_has_grown_is_told_and_reports_keep_their_names(run: RunDirectory) -> None:
    keeper = HeadKeeper(run, 1, 1)
    meter = run.path / "node-1/reports/meter-rank-3.jsonl"
    meter.write_bytes(b"a\n")
    (run.path / "node-1/metrics.jsonl").write_bytes(b"m\n")
    (run.path / "events/node-1-1.jsonl").write_bytes(b"e\n")
    (run.path / "plan.json").write_bytes(b"node 0 sees to it")
    assert looked(keeper) == {
        "node-1/meter-rank-3.jsonl": digest(b"a\n"),
        "node-1/metrics.jsonl": digest(b"m\n"),
        "events/node-1-1.jsonl": digest(b"e\n"),
    }
    assert looked(keeper) == {}
    with meter.open("ab") as stream:
        stream.write(b"b\n")
    list(Reports(run.node(1)).take())
    assert looked(keeper) == {"node-1/meter-rank-3.jsonl": digest(b"a\nb\n")}


def test_a_job_can_neither_block_the_agent_nor_write_a_chain(run: RunDirectory) -> None:
    reports = run.path / "node-0/reports"
    os.mkfifo(reports / "meter-rank-0.jsonl")
    (reports / "meter-rank-1.jsonl").symlink_to("/dev/zero")
    (reports / "meter-rank-2.jsonl").mkdir()
    (reports / "chain-1.jsonl").write_text("a lie")
    (run.path / path_of(1)).write_text("the truth")
    assert looked(HeadKeeper(run, 0, 1)) == {}
    assert any("chain-1.jsonl was not collected" in text for text in Reports(run.node(0)).take())
    assert (run.path / path_of(1)).read_text() == "the truth"


def served(run: RunDirectory, writer: ChainWriter) -> tuple[Coordinator, Link]:
    record = run.writer("coordinator-1")
    coordinator = Coordinator(record, 1, ["worker-0"], ("127.0.0.1", 0), SECRET, 1.0, Limits(), writer)
    address = coordinator._listener.getsockname()
    coordinator.start()
    return coordinator, Link.open(address, 0, SECRET, 20.0, lambda: None)


def test_heads_of_nodes_and_the_coordinators_own_events_are_chained(run: RunDirectory) -> None:
    path = run.path / path_of(1)
    coordinator, link = served(run, ChainWriter(path, run.id, "0" * 32, 1.0))
    head = digest(b"m\n")
    for kind in ("ready", "done"):
        link.send({"type": kind})
    link.send({"type": "heads", "heads": {"node-0/metrics.jsonl": [head.length, head.sha256]}})
    link.send({"type": "closed"})
    until(lambda: not coordinator.is_alive(), 30, "the coordinator ended")
    found = chain.read(path.read_bytes())
    noted = {name: head for record in found.records for name, head in record.heads.items()}
    events = (run.path / "events/coordinator-1.jsonl").read_bytes()
    assert noted == {"node-0/metrics.jsonl": head, "events/coordinator-1.jsonl": digest(events)}
    assert found.is_closed and b"attempt-finished" in events


def test_a_chain_that_cannot_be_written_does_not_end_the_run(run: RunDirectory) -> None:
    writer = ChainWriter(run.path / path_of(1), run.id, "", 1.0)
    assert writer._handle is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._handle)
    os.close(full)
    coordinator, link = served(run, writer)
    for kind in ("ready", "done", "closed"):
        link.send({"type": kind})
    until(lambda: not coordinator.is_alive(), 30, "the coordinator ended")
    assert coordinator.outcome is not None and coordinator.outcome.state is RunState.SUCCEEDED
    assert len(chain.read((run.path / path_of(1)).read_bytes()).records) == 1


def test_files_without_end_cost_a_bounded_effort(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse files take no room on the disk: a job can lay there more than could be hashed in days."""
    monkeypatch.setattr(heads, "_MOST_BYTES", 5 << 20)
    for rank in range(50):
        with (run.path / f"node-0/reports/meter-rank-{rank}.jsonl").open("wb") as stream:
            stream.truncate(1 << 40)
        with (run.path / f"node-0/rank-{rank}.log").open("wb") as stream:
            stream.truncate(1 << 40)
    (run.path / "events/node-0-1.jsonl").write_bytes(b"e\n")
    keeper = HeadKeeper(run, 0, 1)
    found = looked(keeper)
    assert found["events/node-0-1.jsonl"] == digest(b"e\n")
    assert sum(head.length for head in found.values()) == 2 + 2 * (5 << 20)
    assert looked(keeper) == {}


def test_a_report_named_as_the_folder_hides_no_other(run: RunDirectory) -> None:
    for name in ("reports", "result.json"):
        (run.path / "node-0/reports" / name).write_text("x")
    (problem,) = Reports(run.node(0)).take()
    assert problem.startswith("reports/reports was not collected") and (run.node(0) / "result.json").exists()
