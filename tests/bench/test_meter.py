"""The meter: what it writes, what it costs, what a SIGKILL takes, and where it runs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support import until
from trainshed.bench.measure.evidence import RunEvidence, read_meter
from trainshed.payload.common import trainshed_meter

pytestmark = [pytest.mark.benchmark]
SITE = Path(trainshed_meter.__file__).parent


def records(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (folder / f"meter-rank-{rank}.jsonl").read_text().splitlines()]


def steps_in(folder: Path) -> list[int]:
    """The steps of each write that has reached the file."""
    try:
        text = (folder / "meter-rank-0.jsonl").read_text()
    except FileNotFoundError:
        return []
    written = [json.loads(line) for line in text.split("\n")[:-1]]
    return [len(record["at"]) for record in written if record["event"] == "steps"]


def test_everything_said_is_written_in_order_with_both_clocks(tmp_path: Path) -> None:
    meter = trainshed_meter.Meter(str(tmp_path), rank=3, world=4)
    meter.seed(17)
    meter.dataset("digits", "sha256:ab", train_samples=10, eval_samples=5)
    with meter.phase("prepare"):
        pass
    meter.start(global_batch_size=128)
    with meter.epoch():
        meter.step(32)
        meter.loss(0.5)
        meter.step(64, steps=2)
    with meter.evaluation():
        pass
    meter.quality("accuracy", 0.9)
    meter.quality("accuracy", float("nan"))
    meter.stop()
    written = records(tmp_path, 3)
    names = [r["event"] for r in written]
    assert names == [
        "meter", "seed", "dataset", "phase_start", "phase_stop", "setting", "start", "epoch_start", "steps",
        "loss", "steps", "epoch_stop", "eval_start", "eval_stop", "quality", "quality", "stop", "end",
    ]  # fmt: skip
    assert [r["seq"] for r in written] == list(range(len(written)))
    assert all(abs((r["wall"] - r["mono"]) - (time.time() - time.monotonic())) < 1.0 for r in written)
    assert written[-3]["value"] is None and written[-3]["not_finite"] == "nan"
    assert written[-1]["steps"] == 3 and written[-1]["samples"] == 96
    evidence = RunEvidence(tmp_path)
    (session,) = read_meter(tmp_path / "meter-rank-3.jsonl", evidence)
    assert evidence.defects == [] and session.closed and session.step_count == 3


def test_without_a_folder_every_call_is_accepted_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINSHED_METRICS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    meter = trainshed_meter.Meter()
    meter.start()
    meter.step(1)
    meter.stop()
    assert list(tmp_path.iterdir()) == []


def test_many_steps_are_all_counted(tmp_path: Path) -> None:
    meter = trainshed_meter.Meter(str(tmp_path))
    for _ in range(50_000):
        meter.step(32)
    meter.close()
    assert records(tmp_path)[-1]["steps"] == 50_000


def test_sigkill_loses_only_what_was_not_written_yet(tmp_path: Path) -> None:
    """The meter writes every quarter of a second by itself; what a reader has seen stays."""
    script = (
        "import time; from trainshed_meter import Meter; m = Meter(); m.start()\n"
        "while True: m.step(1); time.sleep(0.01)\n"
    )
    env = {
        **os.environ,
        "PYTHONPATH": str(SITE),
        "TRAINSHED_METRICS_DIR": str(tmp_path),
        "TRAINSHED_RANK": "0",
    }
    child = subprocess.Popen([sys.executable, "-c", script], env=env)
    try:
        seen = until(lambda: len(written := steps_in(tmp_path)) >= 3 and sum(written), 60, "three writes")
    finally:
        child.kill()
        child.wait(10)
    evidence = RunEvidence(tmp_path)
    (session,) = read_meter(tmp_path / "meter-rank-0.jsonl", evidence)
    assert evidence.defects == [] and not session.closed
    assert len(session.at) >= seen > 0


def test_what_is_said_just_before_exit_is_there(tmp_path: Path) -> None:
    script = "from trainshed_meter import Meter; m = Meter(); m.step(7); raise SystemExit(3)"
    env = {
        **os.environ,
        "PYTHONPATH": str(SITE),
        "TRAINSHED_METRICS_DIR": str(tmp_path),
        "TRAINSHED_RANK": "5",
    }
    assert subprocess.run([sys.executable, "-c", script], env=env, check=False).returncode == 3
    assert [r["event"] for r in records(tmp_path, 5)] == ["meter", "steps", "end"]


def test_a_forked_child_writes_nothing_into_its_parents_file(tmp_path: Path) -> None:
    meter = trainshed_meter.Meter(str(tmp_path))
    child = os.fork()
    if child == 0:
        meter.step(1000)
        meter.close()
        os._exit(0)
    os.waitpid(child, 0)
    meter.step(1)
    meter.close()
    assert records(tmp_path)[-1]["samples"] == 1


@pytest.mark.parametrize("name", ["trainshed_meter.py", "ais_utils.py"])
def test_files_given_to_scripts_are_python_3_7_and_standard_library_only(name: str) -> None:
    tree = ast.parse((SITE / name).read_text(), feature_version=(3, 7))
    for node in ast.walk(tree):
        found = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert all(f.split(".")[0] in sys.stdlib_module_names for f in found), found


def test_trainshed_meter_is_also_trainshed_dot_meter() -> None:
    from trainshed import meter

    assert meter.Meter is trainshed_meter.Meter


def test_the_checksum_of_a_data_set_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x").write_text("1")
    one = trainshed_meter.dataset_checksum(str(tmp_path))
    (tmp_path / "a/x").rename(tmp_path / "a/y")
    two = trainshed_meter.dataset_checksum(str(tmp_path))
    (tmp_path / "a/y").write_text("2")
    assert len({one, two, trainshed_meter.dataset_checksum(str(tmp_path))}) == 3
