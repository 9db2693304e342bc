"""The five lines of docs/python.md on a real Slurm: a notebook user trains 2x2 with a function."""

from __future__ import annotations

import re

import pytest
from slurm_site import Site

from documents import python_blocks, run_script
from support import ENVIRONMENTS, processes_of

pytestmark = [pytest.mark.core, pytest.mark.slurm, pytest.mark.real, pytest.mark.timeout(600)]


def test_the_five_lines_train_on_slurm_too(site: Site) -> None:
    if not (ENVIRONMENTS / "pytorch").exists():
        pytest.skip("trainshed env create pytorch")
    function, five_lines = python_blocks("docs/python.md")[:2]
    on_slurm = five_lines.replace('shape="2x2"', 'shape="2x2", engine="slurm"')
    assert on_slurm != five_lines
    shown = '{"loss": loss, "run": run.id, "engine": run.directory.submission().engine}'
    values, printed = run_script([function, on_slurm], shown, site.folder / "notebook", {})
    assert values["engine"] == "slurm" and 0 <= values["loss"] < 0.5, "it learned"
    assert sorted(re.findall(r"(\d) rank-\d rank (\d) of 4: loss", printed)) == [
        ("0", "0"), ("0", "1"), ("1", "2"), ("1", "3"),
    ], printed  # fmt: skip
    assert not processes_of(values["run"])
