"""MindSpore code written for Ascend is served by the CPU, and every change is said once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import trainshed
from support import ENVIRONMENTS, ROOT, Shed

pytestmark = [pytest.mark.contracts, pytest.mark.real]

PROGRAM = """
import sys
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
from mindspore import context
from mindspore.communication import get_group_size, get_rank, init
context.set_context(mode=context.GRAPH_MODE, device_target="Ascend", device_id=3)
ms.set_device("Ascend", 3)
init()
init("hccl")
data = ds.NumpySlicesDataset(np.arange(16, dtype=np.float32), num_parallel_workers=64)
data = data.map(lambda x: x + 1, num_parallel_workers=64).batch(16)
(batch,) = next(data.create_tuple_iterator(output_numpy=True))
print(context.get_context("device_target"), get_rank(), get_group_size(), float(batch.sum()))
try:
    context.set_context(device_target="Abacus")
except ValueError:
    print("other targets are MindSpore's own affair")
"""


def test_code_for_ascend_runs_on_the_cpu_and_says_so() -> None:
    site = Path(trainshed.__file__).parent / "contracts" / "site"
    done = subprocess.run(
        [ENVIRONMENTS / "mindspore" / "bin" / "python", "-c", PROGRAM],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{site / 'emulation'}:{site / 'common'}",
            "TRAINSHED_EMULATED": "1",
            "GLOG_v": "3",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["CPU 0 1 136.0", "other targets are MindSpore's own affair"]
    said = [line for line in done.stderr.splitlines() if line.startswith("trainshed: EMULATED: ")]
    assert len(said) == 3 == len(set(said))
    assert "device_target='Ascend' is served by the CPU back end" in said[0]
    assert "init() does nothing: this job has one device" in said[1]
    assert f"num_parallel_workers=64 becomes {os.cpu_count()}" in said[2]


def test_a_wrapper_fetches_code_from_the_store_and_leaves_its_log_there(shed: Shed, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "run_train.sh").write_text((ROOT / "examples" / "seed-003" / "code" / "run_train.sh").read_text())
    (code / "run.sh").write_text('echo "at $PWD as $DLS_TASK_INDEX of $DLS_TASK_NUMBER"\n')
    job = tmp_path / "job.yaml"
    job.write_text(
        "{name: wrapped, contract: modelarts-v1, code: 's3://ann/code/', resources: 2x1, log_url: 's3://ann/log/',"
        " options: {wrapper: run_train.sh}, command: bash /home/work/run_train.sh bash /home/work/user-job-dir/run.sh}"
    )
    try:
        for words in (["store", "up"], ["store", "user", "add", "ann"], ["cp", f"{code}/", "s3://ann/code/"]):
            done = shed.cli(*words)
            assert done.returncode == 0, done.stderr
        done = shed.cli("run", job)
        assert done.returncode == 0, done.stdout + done.stderr
        for index in (0, 1):
            assert f"at /home/work/user-job-dir as {index} of 2" in done.stdout
        listed = shed.cli("ls", "s3://ann/log/").stdout
        assert listed.count("-job-wrapped-") == 2 and "dls-log-wrapped-" in listed
        (run,) = (shed.home / "runs").iterdir()
        users = json.loads((shed.home / "store" / "identities.json").read_text())["users"]
        keys = [user[name] for user in users for name in ("access_key", "secret_key")]
        texts = [path.read_text(errors="replace") for path in run.rglob("*") if path.is_file()]
        assert len(keys) == 4 and not [key for key in keys if any(key in text for text in texts)]
    finally:
        shed.cli("store", "down")
