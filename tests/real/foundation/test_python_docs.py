"""docs/python.md, executed: a notebook user trains 2x2 with a function, and everything else the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents import python_blocks, run_script
from support import ENVIRONMENTS, Shed, processes_of

pytestmark = [pytest.mark.core, pytest.mark.real, pytest.mark.timeout(600)]

SHOWN = """{
    "loss": loss, "sweep": same, "size": prepared.plan.size, "exit_code": outcome.exit_code,
    "stopped": stopped.value, "ids": [found.id for found in trainshed.runs()], "left": len(client.runs()),
}"""


def test_the_page_on_python_does_what_it_says(shed: Shed, tmp_path: Path) -> None:
    if not (ENVIRONMENTS / "pytorch").exists():
        pytest.skip("trainshed env create pytorch")
    folder = tmp_path / "notebook"
    folder.mkdir()
    (folder / "job.yaml").write_text("{name: pair, command: echo rank $TRAINSHED_RANK}\n")
    environ = {"TRAINSHED_HOME": str(shed.home), "TRAINSHED_ENVS": str(ENVIRONMENTS)}
    values, printed = run_script(python_blocks("docs/python.md"), SHOWN, folder, environ)
    assert sorted(re.findall(r"\d rank-\d rank (\d) of 4: loss", printed)) == ["0", "1", "2", "3"], printed
    assert 0 <= values["loss"] < 0.5, "it learned"
    assert (values["size"], values["exit_code"], values["stopped"], values["left"]) == (4, 0, "stopped", 0)
    assert len(values["sweep"]) == 1 and values["sweep"][0].startswith("pair-")
    assert "no data in /data" in printed and re.search(r" 3 (rank|node)-0$", printed, re.M), printed
    assert len(values["ids"]) == 5
    for run in values["ids"]:
        assert not processes_of(run)


def test_the_example_for_notebooks_has_five_lines() -> None:
    example = [line for line in python_blocks("docs/python.md")[1].splitlines() if line]
    assert len(example) == 5 and "trainshed.submit(train" in example[1]
