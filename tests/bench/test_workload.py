"""Workloads: what they promise, how their data are made, and what their scripts count."""

from __future__ import annotations

import os
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from trainshed.api import makers
from trainshed.bench.run import template, workload
from trainshed.errors import TrainshedError, UsageError
from trainshed.payload.common import trainshed_meter

pytestmark = [pytest.mark.benchmark]
ROOT = Path(__file__).parents[2]
WORKLOADS = sorted(p.parent for p in (ROOT / "workloads").glob("*/workload.yaml"))

KILLED_HALFWAY = """
import os, signal, sys
from pathlib import Path
folder = Path(sys.argv[1])
folder.mkdir()
(folder / "half.txt").write_text("1")
os.kill(os.getpid(), signal.SIGKILL)
"""
WHOLE = """
import sys
from pathlib import Path
Path(sys.argv[1]).mkdir()
Path(sys.argv[1], "whole.txt").write_text("1")
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    template.make(tmp_path / "my-model", "command")
    return tmp_path / "my-model"


@pytest.mark.parametrize("folder", WORKLOADS, ids=lambda p: p.name)
def test_every_scale_tells_its_script_what_the_data_are_called(folder: Path) -> None:
    for scale in workload.load(folder).scales.values():
        assert scale.parameters["dataset"] == scale.dataset.name


def test_data_of_a_maker_that_was_killed_are_made_again(mine: Path) -> None:
    (mine / "make_data.py").write_text(KILLED_HALFWAY)
    bench = workload.choose(mine, home=mine.parent)
    with pytest.raises(TrainshedError, match=r"make_data\.py failed"):
        workload.prepare_data(bench, os.environ)
    (mine / "make_data.py").write_text(WHOLE)
    workload.prepare_data(bench, os.environ)
    assert sorted(p.name for p in mine.iterdir()) == ["data", "make_data.py", "train.py", "workload.yaml"]
    assert [p.name for p in (mine / "data").iterdir()] == ["whole.txt"]


@pytest.mark.parametrize(
    ("source", "words"),
    [("import time; time.sleep(60)", "did not finish within 0.5 s"), ("", "No such file or directory")],
)
def test_a_maker_that_makes_nothing_is_one_clear_error(
    mine: Path, source: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(makers, "_LONGEST_SECONDS", 0.5 if source else 60)
    (mine / "make_data.py").write_text(source)
    with pytest.raises(TrainshedError, match=words):
        workload.prepare_data(workload.choose(mine, home=mine.parent), os.environ)
    assert not (mine / "data").exists()


@pytest.mark.field
def test_what_a_script_is_passed_is_the_workloads_choice(mine: Path) -> None:
    (mine / "data").mkdir()
    usual = workload.job_of(workload.choose(mine, home=mine.parent), 5)
    assert usual.parameters == {"epochs": 100, "seed": 5, "target": 0.85}
    assert [(c.name, c.access) for c in (*usual.inputs, *usual.outputs)] == [
        ("data", "argument"),
        ("out", "argument"),
    ]
    text = (mine / "workload.yaml").read_text()
    chosen = text.replace("    launcher: command\n", "    launcher: command\n    args: [3]\n    passed: "
                          "{data: train-dir, out: null, seed: random-seed, target: null}\n")  # fmt: skip
    (mine / "workload.yaml").write_text(chosen)
    bench = workload.choose(mine, home=mine.parent)
    job, rules = workload.job_of(bench, 5), workload.rules_of(bench)
    assert (job.args, job.parameters) == (("3",), {"epochs": 100, "random-seed": 5})
    assert [(c.name, c.access) for c in (*job.inputs, *job.outputs)] == [
        ("train-dir", "argument"),
        ("out", "env"),
    ]
    assert (rules.seed_parameter, rules.target_parameter) == ("random-seed", "")
    (mine / "workload.yaml").write_text(chosen.replace("random-seed, ", "random-seed, sed: x, "))
    with pytest.raises(UsageError, match=r"passed\.sed"):
        workload.load(mine)


def test_a_pattern_that_cannot_be_read_names_its_field(mine: Path) -> None:
    file = mine / "workload.yaml"
    file.write_text(file.read_text() + "log_patterns: {throughput: 'img/s: (['}\n")
    with pytest.raises(UsageError, match=r"log_patterns is .*: throughput: .*not a valid regular expression"):
        workload.load(mine)


def test_the_template_counts_a_short_last_batch_as_it_is(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload.prepare_data(workload.choose(mine, home=mine.parent), os.environ)
    environment = {"METRICS_DIR": str(tmp_path / "out"), "RANK": "0", "WORLD_SIZE": "3"}
    for name, value in environment.items():
        monkeypatch.setenv(f"TRAINSHED_{name}", value)
    monkeypatch.setitem(sys.modules, "trainshed_meter", trainshed_meter)
    monkeypatch.setattr(sys, "argv", ["train.py", f"--data={mine / 'data'}", "--epochs=1"])
    runpy.run_path(str(mine / "train.py"))
    assert f'"samples": {2000 // 3}' in (tmp_path / "out/meter-rank-0.jsonl").read_text().splitlines()[-1]


def bert(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The script's own functions; MindSpore is not needed for what is tested here."""
    cells = types.SimpleNamespace(Cell=object, Dense=object)
    modules = {
        "mindspore": types.SimpleNamespace(nn=cells, ops=None, Tensor=object),
        "mindspore.common": types.SimpleNamespace(initializer=None),
        "mindspore.communication": types.SimpleNamespace(get_group_size=None, get_rank=None, init=None),
        "trainshed_meter": trainshed_meter,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(ROOT / "workloads/bert/mindspore/train.py"))


@pytest.mark.parametrize(("rows", "batch"), [(10, 4), (3, 8), (8, 4)])
def test_bert_evaluates_every_row_in_batches_of_one_size(
    rows: int, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = bert(monkeypatch)
    np.save(tmp_path / "tokens.npy", np.arange(5, 5 + rows * 6, dtype=np.uint16).reshape(rows, 6))
    options = types.SimpleNamespace(length=6, batch=batch)
    parts = [p for rank in (0, 1) for p in script["Packed"](tmp_path, options, rank, 2).parts()]  # type: ignore[operator]
    assert {p.shape for p in parts} == {(batch, 6)}
    seen = np.concatenate(parts)
    assert sorted(seen[seen >= script["SPECIAL"]]) == list(range(5, 5 + rows * 6))
