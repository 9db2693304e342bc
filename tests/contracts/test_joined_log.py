"""The log at log_url: every line of the node's processes once, while they run and at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contracts.made import made
from support import until
from trainshed.access import StoreAccess
from trainshed.agent.joined import JoinedLog
from trainshed.plan.model import NodePlan, Transfer
from trainshed.runs.directory import RunDirectory

pytestmark = [pytest.mark.contracts]


def node(target: Path, processes: int) -> NodePlan:
    planned = made("modelarts-v1", f"1x{processes}", launcher="command").nodes[0]
    return replace(planned, log=Transfer("worker-0.log", "", f"{target}/", 0.05))


def joined(tmp_path: Path, processes: int) -> tuple[JoinedLog, RunDirectory, Path]:
    run, target = RunDirectory(tmp_path / "run"), tmp_path / "log"
    run.node(0).mkdir(parents=True)
    planned = node(target, processes)
    assert planned.log
    return JoinedLog(run, planned, planned.log, StoreAccess(tmp_path)), run, target / "worker-0.log"


def test_it_grows_while_the_job_runs_and_is_whole_at_the_end(tmp_path: Path) -> None:
    log, run, left = joined(tmp_path, 2)
    log.start()
    with run.log(0, "rank-0").open("a") as first, run.log(0, "rank-1").open("a") as second:
        first.write("one\n")
        first.flush()
        until(lambda: left.exists() and "[rank-0] one\n" in left.read_text(), what="an upload while it runs")
        second.write("two\nunfinished")
    assert log.finish() == ""
    lines = left.read_text().splitlines()
    assert sorted(lines) == ["[rank-0] one", "[rank-1] two", "[rank-1] unfinished"]


def test_the_log_of_a_single_process_is_as_it_wrote_it(tmp_path: Path) -> None:
    log, run, left = joined(tmp_path, 1)
    log.start()
    run.log(0, "rank-0").write_text("trained\n")
    (run.node(0) / "agent.log").write_text("the agent's own words\n")
    assert log.finish() == ""
    assert left.read_text() == "trained\n"


def test_a_place_that_cannot_be_written_is_told_at_the_end(tmp_path: Path) -> None:
    log, run, left = joined(tmp_path, 1)
    left.mkdir(parents=True)
    log.start()
    run.log(0, "rank-0").write_text("trained\n")
    assert "cannot save the log worker-0.log" in log.finish()


def test_a_log_that_never_started_has_nothing_to_finish(tmp_path: Path) -> None:
    log, _, left = joined(tmp_path, 1)
    assert log.finish() == "" and not left.exists()
