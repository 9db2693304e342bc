"""Every command of the pages on the platforms' guides does what the page says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import ROOT, Shed

pytestmark = [pytest.mark.contracts, pytest.mark.real, pytest.mark.timeout(900)]

PAGES = ROOT / "docs" / "platforms"
_BLOCK = re.compile(r"^```sh( fails)?\n(.*?)^```$", re.M | re.S)


class Page:
    """A page's blocks of commands, run one after the other in a checkout."""

    def __init__(self, name: str, shed: Shed) -> None:
        self.blocks = _BLOCK.findall((PAGES / f"{name}.md").read_text())
        self.shed = shed

    def run(self) -> list[str]:
        """What each block printed. A block marked `fails` must."""
        assert self.blocks
        said = []
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        for fails, block in self.blocks:
            done = subprocess.run(
                ["/bin/bash", "-ec", block],
                cwd=ROOT,
                env=self.shed.env | {"PATH": ":".join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=600,
            )
            assert bool(done.returncode) == bool(fails), f"{block}\n{done.stdout[-4000:]}"
            said.append(done.stdout)
        return said


@pytest.fixture
def clean(shed: Shed) -> Iterator[Shed]:
    yield shed
    shed.cli("store", "down")
    shutil.rmtree(shed.home, ignore_errors=True)


def test_single_server_mode_trains_a_model_on_every_node(clean: Shed) -> None:
    plan, trained = Page("aisbench-modelarts", clean).run()
    assert plan.count("DLS_TASK_NUMBER=1") == 2
    (run,) = (clean.home / "runs").iterdir()
    for index in (0, 1):
        folder = run / "outputs" / f"node-{index}" / "train_url"
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["accuracy.json", "ranksize.json", "throughput_0.json", "throughput_1.json"]
        assert json.loads((folder / "ranksize.json").read_text()) == 2
        assert json.loads((folder / "accuracy.json").read_text()) > 0.5
    assert "EMULATED" in trained


def test_a_model_zoo_script_leaves_its_results_in_the_store(clean: Shed) -> None:
    _, trained, _ = Page("aisbench-train-modelarts", clean).run()
    names = re.findall(r"(\S+\.json)$", trained, re.M)
    assert names == ["accuracy.json", "ranksize.json", *(f"throughput_{rank}.json" for rank in range(4))]
    assert re.search(r"^4(?=\s)", trained, re.M), "ranksize.json"
    assert len(re.findall(r"job[0-9a-f]{8}-job-aisbench-debug-[01]\.log$", trained, re.M)) == 2
    copied = re.findall(r"^\[rank-(\d)\] .*copied s3://ms-dataset/cifar-10/ to /cache/data$", trained, re.M)
    assert sorted(copied) == ["0", "2"], "one process of each node copies"


def test_resnet50_trains_on_one_and_on_eight_emulated_devices(clean: Shed) -> None:
    refused, _, one, eight, _ = Page("mindspore-modelarts", clean).run()
    assert "has 0" in refused and "--emulate" in refused
    assert "device_target='Ascend' is served by the CPU" in one
    assert json.loads(one[one.index('{"accuracy"') :].splitlines()[0])["accuracy"] >= 0.8
    assert len(set(re.findall(r"^\[rank-(\d)\].*accuracy=", eight, re.M))) == 8
    assert "result.json" in eight and re.search(r"job[0-9a-f]{8}-job-resnet50-train-0\.log", eight)


def test_the_wrapper_and_script_of_the_paddle_guide_run_as_they_stand(clean: Shed) -> None:
    # The guide's own bytes: whoever edits these files no longer proves what the page says.
    as_they_stand = {
        "run.sh": "017fd345b9575980580c1b6d6443e10efb3b897ff731819c5424b8877dc2fab2",
        "run_train.sh": "ef263cd92128bd62a5c93a32a0095750be79d181c1b2c4bb6a9ab89bbb0cbaf6",
    }
    for name, expected in as_they_stand.items():
        mine = (ROOT / "examples" / "modelarts-paddle-fleet" / "code" / name).read_bytes()
        assert hashlib.sha256(mine).hexdigest() == expected
    one, two = Page("paddle-modelarts", clean).run()
    assert "does not know --selected_gpus" in one and "rank 0 of 2" in one
    assert "does not know --cluster_node_ips, --node_ip, --started_port, --selected_gpus" in two
    # Paddle's launcher shows the first process of each node.
    assert set(re.findall(r"rank (\d) of 4: [^,]*, weights agree", two)) == {"0", "2"}


def test_the_npu_script_of_the_apulis_guide_is_shown_its_mistake_and_a_corrected_one_trains(
    clean: Shed,
) -> None:
    wrong, right, checked, horovod = Page("apulis", clean).run()
    assert "belongs to" in wrong and "use RANK_ID=SERVER_INDEX*8+i" in wrong
    ranks = re.findall(r"rank (\d+) of 16: [^,]*, weights agree", right)
    assert sorted(map(int, ranks)) == list(range(16))
    assert checked
    assert sorted(re.findall(r"rank (\d) of 4: [^,]*, weights agree", horovod)) == ["0", "1", "2", "3"]
    assert "epoch-1.pt" in horovod
