"""Training throughput under Trainshed against the framework's own launcher: two ranks on one node.

A side's seconds are those that rank 0 spent in its training loop, so start-up
does not count: what is left is what running under an agent costs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from races.harness import ROOT, Race
from races.startup import free_port

ENVIRONMENTS = Path(os.environ.get("TRAINSHED_ENVS") or ROOT / ".envs")
PYTORCH = """\
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
inputs, labels = torch.randn(128, 256), torch.randint(0, 10, (128,))
began = 0.0
for step in range(620):
    if step == 20:
        dist.barrier()
        began = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    if step % 20 == 0:
        print("step", step, flush=True)
dist.barrier()
if dist.get_rank() == 0:
    print("seconds", time.perf_counter() - began, flush=True)
dist.destroy_process_group()
"""
MINDSPORE = """\
import time
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import init, get_rank

ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
init()
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=2)
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(256, 512), nn.ReLU(), nn.Dense(512, 512), nn.ReLU(), nn.Dense(512, 10))
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.01, 0.9))
train.set_train()
inputs = ms.Tensor(np.random.randn(128, 256).astype(np.float32))
labels = ms.Tensor(np.random.randint(0, 10, 128).astype(np.int32))
began = 0.0
for step in range(320):
    if step == 20:
        began = time.perf_counter()
    value = float(train(inputs, labels).asnumpy())
    if step % 20 == 0:
        print("step", step, flush=True)
if get_rank() == 0:
    print("seconds", time.perf_counter() - began, flush=True)
"""


def setup(work: Path) -> None:
    for name, text in (("pytorch", PYTORCH), ("mindspore", MINDSPORE)):
        folder = work / name
        folder.mkdir()
        (folder / "train.py").write_text(text)
        (folder / "job.yaml").write_text(
            f"name: {name}\nlauncher: {name}\nenvironment: {name}\ncode: .\nentry: train.py\nresources: 1x2\n"
        )


def ours(name: str) -> object:
    def side(work: Path) -> float:
        env = os.environ | {"TRAINSHED_HOME": str(work / "home"), "TRAINSHED_ENVS": str(ENVIRONMENTS)}
        command = [str(Path(sys.executable).with_name("trainshed")), "run", str(work / name / "job.yaml")]
        return _seconds(command, env, work)

    return side


def torchrun(work: Path) -> float:
    program = ENVIRONMENTS / "pytorch" / "bin" / "python"
    command = [program, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    return _seconds([*command, work / "pytorch" / "train.py"], os.environ | {"OMP_NUM_THREADS": "1"}, work)


def msrun(work: Path) -> float:
    program = ENVIRONMENTS / "mindspore" / "bin" / "python"
    script = "import sys; from mindspore.parallel.cluster.run import main; sys.exit(main())"
    command = [
        program,
        "-c",
        script,
        "--worker_num=2",
        "--local_worker_num=2",
        f"--master_port={free_port()}",
    ]
    logs = work / "msrun"
    command += [f"--log_dir={logs}", "--join=True", work / "mindspore" / "train.py"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(list(map(str, command)), env=env, cwd=work, check=True, capture_output=True, timeout=600)
    return _reported("".join(path.read_text() for path in logs.glob("worker_*.log")))


def _seconds(command: list[object], env: dict[str, str], work: Path) -> float:
    done = subprocess.run(
        list(map(str, command)), env=env, cwd=work, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} exited with {done.returncode}: {done.stderr[-2000:]}")
    return _reported(done.stdout)


def _reported(text: str) -> float:
    found = [line.split()[-1] for line in text.splitlines() if "seconds" in line.split()]
    if not found:
        raise RuntimeError(f"rank 0 reported no time: {text[-500:]}")
    return float(found[-1])


def _needs(name: str) -> object:
    return lambda: "" if (ENVIRONMENTS / name).is_dir() else f"trainshed env create {name}"


RACES = [
    Race(
        "training-pytorch",
        ours("pytorch"),
        {"torchrun": torchrun},
        setup,
        rounds=5,
        least=0.99,
        needs=_needs("pytorch"),
    ),  # type: ignore[arg-type]
    Race(
        "training-mindspore",
        ours("mindspore"),
        {"msrun": msrun},
        setup,
        rounds=5,
        least=0.99,
        needs=_needs("mindspore"),
    ),  # type: ignore[arg-type]
]
