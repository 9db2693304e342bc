"""Examples and workloads that are shipped: listed, copied, found by name, their data made when missing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from support import ROOT, Shed
from trainshed import shipped
from trainshed.bench.run import workload
from trainshed.errors import NotFoundError
from trainshed.spec.load import SpecError, load_job

pytestmark = [pytest.mark.foundation, pytest.mark.field]


def test_every_example_has_a_readme_and_stands_in_the_list_of_all() -> None:
    overview = (ROOT / "examples/README.md").read_text()
    for name, folder in shipped.examples().items():
        assert f"[{name}]({name}/)" in overview
        title = (folder / "README.md").read_text().split("\n", 1)[0]
        assert title.startswith("# ") and title[2:] in overview
        assert "seed" not in name


def test_examples_are_listed_with_what_they_are(shed: Shed) -> None:
    rows = json.loads(shed.cli("example", "list", "--json").stdout)
    assert {row["name"] for row in rows} >= {"pytorch-digits", "modelarts-mindspore-resnet", "apulis-horovod"}
    assert all(row["title"] and row["environment"] for row in rows)


@pytest.mark.parametrize("name", shipped.examples())
def test_a_copied_example_is_a_whole_job(shed: Shed, tmp_path: Path, name: str) -> None:
    done = shed.cli("example", "copy", name, tmp_path / "mine")
    assert done.returncode == 0, done.stderr
    job = load_job(tmp_path / "mine" / name)
    assert job.code is not None and Path(job.code).is_relative_to(tmp_path)
    again = shed.cli("example", "copy", name, tmp_path / "mine")
    assert again.returncode == 64 and "exists" in again.stderr


def test_commands_of_the_readmes_name_examples_and_environments_that_exist() -> None:
    for folder in shipped.examples().values():
        text = (folder / "README.md").read_text()
        assert set(re.findall(r"trainshed run (\S+)", text)) == {folder.name}


def test_an_input_that_is_missing_is_made_once(shed: Shed) -> None:
    maker = "import sys, pathlib\nf = pathlib.Path(sys.argv[1]); f.mkdir(); (f / 'x').write_text('made')\n"
    files = {"make.py": maker, "t.py": "import sys; print(open(sys.argv[1].split('=')[1] + '/x').read())"}
    job = shed.job("made", files, entry="t.py", inputs=[{"name": "d", "source": "data", "maker": "make.py"}])
    shown = shed.cli("run", job, "--dry-run")
    assert shown.returncode == 0 and not (job.parent / "data").exists()
    for _ in range(2):
        done = shed.cli("run", job)
        assert done.returncode == 0, done.stderr
        assert "made" in done.stdout
        (job.parent / "make.py").write_text("raise SystemExit('called again')")


def test_a_maker_that_fails_is_named_with_its_words(shed: Shed) -> None:
    files = {"make.py": "raise SystemExit('no room left')"}
    job = shed.job("made", files, command="ls", inputs=[{"name": "d", "source": "data", "maker": "make.py"}])
    done = shed.cli("run", job)
    assert done.returncode == 1 and "make.py failed: no room left" in done.stderr
    assert not list(job.parent.glob("*data*"))


def test_a_maker_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("{name: a, command: ls, inputs: [{name: d, source: x, maker: make.py}]}")
    with pytest.raises(SpecError, match=r"inputs\.0\.maker is 'make.py': no such file"):
        load_job(job)


def test_a_shipped_workload_is_found_by_its_name(tmp_path: Path) -> None:
    bench = workload.choose(Path("resnet50"), home=tmp_path)
    assert bench.folder == str(shipped.workloads()["resnet50"])
    assert bench.data_folder == str(tmp_path / "data/digits-16")
    with pytest.raises(NotFoundError, match=r"no such workload.*did you mean resnet50\?"):
        workload.choose(Path("resnet-50"), home=tmp_path)


@pytest.mark.parametrize("name", shipped.workloads())
def test_no_workload_writes_beside_itself(name: str, tmp_path: Path) -> None:
    bench = workload.choose(Path(name), home=tmp_path)
    workload.prepare_data(bench, os.environ)
    assert Path(bench.data_folder).is_relative_to(tmp_path) and any(Path(bench.data_folder).iterdir())
