"""docs/benchmark.md's script, which knows nothing of Trainshed, gives a valid result by its workload.yaml alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support import ROOT, Shed
from trainshed.bench.judge.check import check

pytestmark = [pytest.mark.benchmark, pytest.mark.field, pytest.mark.real]


def blocks() -> dict[str, str]:
    """The first block of each language in the section."""
    section = (ROOT / "docs" / "benchmark.md").read_text().partition("### Without touching the script\n")[2]
    found: dict[str, str] = {}
    for language, text in re.findall(r"```(\w+)\n(.*?)```", section.partition("\n### ")[0], re.S):
        found.setdefault(language, text)
    return found


@pytest.fixture
def example(tmp_path: Path) -> Path:
    folder = tmp_path / "line-fit"
    folder.mkdir()
    (folder / "train.py").write_text(blocks()["python"])
    # How much runs differ is the machine's matter: the limits are taken off, the rest is as the page says.
    text, limits = blocks()["yaml"], "    runs: 3\n    max_spread: 100\n    max_interval: 100\n"
    assert text.count("    runs: 3\n") == 1
    (folder / "workload.yaml").write_text(text.replace("    runs: 3\n", limits))
    assert "trainshed" not in (folder / "train.py").read_text().lower()
    return folder


def test_the_example_of_the_page_gives_a_valid_result(example: Path, shed: Shed) -> None:
    done = shed.cli("bench", "run", example, "--seed", "40", "--out", example / "result")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((example / "result" / "result.json").read_text())
    assert (result["status"], [run["seed"] for run in result["runs"]]) == ("valid", [41, 42, 43])
    first = result["runs"][0]
    stated = re.search(r"done: ([0-9.]+) samples", (example / "result/runs/1/node-0/rank-0.log").read_text())
    assert stated and first["throughput"]["value"] == float(stated[1])
    assert "for all ranks" in first["throughput"]["source"]
    assert "not_measured" in first["throughput_sum_of_ranks"]
    assert first["quality"]["value"] > 0.9
    argv = json.loads((example / "result/runs/1/plan.json").read_text())["nodes"][0]["processes"][0]["argv"]
    assert argv[-2:] == ["20", "--random-seed=41"], "nothing else is passed"
    assert check(example / "result").findings == []
