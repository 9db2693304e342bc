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


MIXED = """
import numpy as np
import mindspore.common.dtype as mstype
import mindspore.dataset as ds
import mindspore.dataset.transforms.c_transforms as C2
import mindspore.dataset.vision.c_transforms as C
from mindspore.dataset.transforms.py_transforms import Compose
from mindspore.dataset.vision.py_transforms import Normalize, ToTensor
from mindspore import Model, Tensor, amp, context, ms_function, nn
from mindspore.common.api import ms_function as again
from mindspore.nn.metrics import Accuracy
from mindspore.train.callback import LossMonitor
from mindspore.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager

context.set_context(mode=context.GRAPH_MODE, device_target="Ascend", save_graphs=False)
context.set_context(enable_task_sink=True, enable_loop_sink=True, enable_graph_kernel=True, max_call_depth=2000)
context.set_auto_parallel_context(mirror_mean=True)
pictures = np.random.default_rng(1).integers(0, 255, (32, 8, 8, 3), dtype=np.uint8)
labels = (pictures.mean((1, 2, 3)) > 127).astype(np.int64)


def data():
    made = ds.NumpySlicesDataset((pictures, labels), ["image", "label"], shuffle=False)
    change = [C.Rescale(1 / 255, 0.0), C.Normalize([0.5] * 3, [0.3] * 3), C.HWC2CHW()]
    made = made.map(operations=change, input_columns="image", num_parallel_workers=8)
    return made.map(operations=C2.TypeCast(mstype.int32), input_columns="label").batch(16, drop_remainder=True)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.all = nn.SequentialCell(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(256, 2))

    def construct(self, x):
        return self.all(x)


for level, more in [
    ("O0", {"loss_scale_manager": FixedLossScaleManager(1024, drop_overflow_update=False)}),
    ("O1", {}),
    ("O2", {"keep_batchnorm_fp32": False, "loss_scale_manager": FixedLossScaleManager(1024, drop_overflow_update=False)}),
    ("O2", {}),
    ("O3", {"loss_scale_manager": DynamicLossScaleManager()}),
    ("O3", {"loss_scale_manager": FixedLossScaleManager()}),
]:
    net = Net()
    scale = 1024 if more and "Fixed" in str(more) and not more["loss_scale_manager"].get_drop_overflow_update() else 1.0
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9, loss_scale=scale)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss_fn=loss, optimizer=optimizer, metrics={"acc": Accuracy()}, amp_level=level, **more)
    model.train(2, data(), callbacks=[LossMonitor(100)], dataset_sink_mode=True)
    print(level, 0 <= model.eval(data(), dataset_sink_mode=True)["acc"] <= 1)
amp.auto_mixed_precision(Net().to_float(mstype.float16), "O2")
first = np.squeeze(Compose([ToTensor(), Normalize((0.5,) * 3, (0.25,) * 3)])(pictures[0]))
print(np.allclose(first, (pictures[0].transpose(2, 0, 1) / 255 - 0.5) / 0.25, atol=1e-5), again is ms_function)
"""


def emulated(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    site = Path(trainshed.__file__).parent / "payload"
    (folder / "program.py").write_text(program)  # graph mode reads the source of what it compiles
    return subprocess.run(
        [ENVIRONMENTS / "mindspore" / "bin" / "python", "program.py"],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{site / 'start'}:{site / 'emulation'}:{site / 'common'}",
            "TRAINSHED_START": "trainshed_emulation",
            "GLOG_v": "3",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.field
def test_mixed_precision_and_names_of_older_releases_are_served(tmp_path: Path) -> None:
    done = emulated(MIXED, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.endswith(" True")]
    assert lines == ["O0 True", "O1 True", "O2 True", "O2 True", "O3 True", "O3 True", "True True"]
    said = [line for line in done.stderr.splitlines() if line.startswith("trainshed: EMULATED: ")]
    assert len(said) == len(set(said))
    for words in (
        "amp_level='O2' is computed in float32, without its default loss scaling",
        "DynamicLossScaleManager is left out",
        "to_float(Float16) is computed in float32",
        "set_context(enable_loop_sink=…) of older releases is left out",
        "set_auto_parallel_context(mirror_mean=…) is gradients_mean today",
        "mindspore.dataset.vision.c_transforms of older releases is today's mindspore.dataset.vision",
    ):
        assert sum(words in line for line in said) == 1, (words, said)


def test_code_for_ascend_runs_on_the_cpu_and_says_so(tmp_path: Path) -> None:
    done = emulated(PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["CPU 0 1 136.0", "other targets are MindSpore's own affair"]
    said = [line for line in done.stderr.splitlines() if line.startswith("trainshed: EMULATED: ")]
    assert len(said) == 3 == len(set(said))
    assert "device_target='Ascend' is served by the CPU back end" in said[0]
    assert "init() does nothing: this process is alone" in said[1]
    assert f"num_parallel_workers=64 becomes {os.cpu_count()}" in said[2]


def test_a_wrapper_fetches_code_from_the_store_and_leaves_its_log_there(shed: Shed, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "run_train.sh").write_text(
        (ROOT / "examples" / "modelarts-paddle-fleet" / "code" / "run_train.sh").read_text()
    )
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
