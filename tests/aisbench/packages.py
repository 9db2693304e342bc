"""Small workloads, packages made of them, and their configuration edited as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from trainshed.aisbench.package import build_package

QUICK = '''
"""Steps without a framework: what the package's own boot file needs."""
import sys, time
from trainshed_meter import Meter

meter = Meter()
meter.seed(1)
meter.start()
for epoch in range(2):
    with meter.epoch():
        for _ in range(20):
            time.sleep(0.005)
            meter.step(samples=8)
    with meter.evaluation():
        pass
    meter.quality("accuracy", 0.7 + epoch / 10)
print("trained with", sys.argv[1:], flush=True)
meter.stop()
'''

ENDLESS = '''
"""Trains until it is stopped, or until the file `go` appears in the data."""
import argparse, time
from pathlib import Path
from trainshed_meter import Meter

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path)
options, _ = parser.parse_known_args()
meter = Meter()
meter.seed(1)
meter.start()
print("training has begun", flush=True)
deadline = time.monotonic() + 120
while not (options.data / "go").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
    meter.step(samples=8)
for _ in range(20):
    meter.step(samples=8)
    time.sleep(0.01)
meter.quality("accuracy", 0.8)
meter.stop()
'''


@dataclass(frozen=True)
class Unpacked:
    """A package on disk and how it is run."""

    root: Path
    home: Path

    @property
    def env(self) -> dict[str, str]:
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("TRAINSHED_", "AIS_BENCH_", "OBS_", "AWS_"))
        }
        envs = os.environ.get("TRAINSHED_ENVS") or str(Path(__file__).resolve().parents[2] / ".envs")
        own = {"TRAINSHED_HOME": str(self.home), "TRAINSHED_ENVS": envs, "AIS_BENCH_PYTHON": sys.executable}
        return clean | own | {"AIS_BENCH_TRANSMIT": "127.0.0.1:0"}

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["./ais-bench-stubs", *words], cwd=self.root, env=self.env | more, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip

    def stubs(self, *words: str, timeout: float = 200, **more: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **more)
        out, _ = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out)

    def modelarts(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["python3", "./code/common/train_modelarts.py", *words], cwd=self.root, env=self.env,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def edit(self, name: str, **changes: str) -> None:
        """Change values of modelarts_config.py ('key': …) or lines of config.sh (export KEY=…)."""
        path = self.root / "code" / "config" / name
        text = path.read_text()
        for key, value in changes.items():
            if name.endswith(".py"):
                text, count = re.subn(rf"['\"]{key}['\"]: [^\n]*,\n", f"'{key}': {value},\n", text)
                assert count, f"{key} is not in {name}"
            else:
                text = re.sub(rf"(?m)^(# )?export {key}=.*\n", "", text) + f"export {key}={value}\n"
        path.write_text(text)


def workload(
    folder: Path, source: str = QUICK, launcher: str = "pytorch", name: str = "tinytest", more: str = ""
) -> Path:
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "train.py").write_text(source)
    environment = sys.prefix if launcher != "mindspore" else "mindspore"
    (folder / "workload.yaml").write_text(
        f"name: {name}\nmodel: Tiny-Test v1.5\nsample: images\n"
        f"implementations:\n  {launcher}: {{code: model, launcher: {launcher}, environment: {environment}}}\n"
        "scales:\n  tiny:\n    shape: 1x2\n    dataset: {name: points, folder: data}\n"
        f"    target: {{value: 0.5}}\n    parameters: {{epochs: 2}}\n    min_steps: 10\n{more}"
    )
    return folder


def unpacked(
    tmp: Path,
    source: str = QUICK,
    launcher: str = "pytorch",
    devices: int = 2,
    job_name: str = "aisbench-debug",
) -> Unpacked:
    """A package built, unpacked and edited: local folders stand in for the object store."""
    made = workload(tmp / "workload", source, launcher)
    archive = build_package(made, "x86_64", "r1.3", tmp / "packages", scale="tiny")
    root = tmp / "unpacked"
    with tarfile.open(archive) as stream:
        stream.extractall(root, filter="data")
    (tmp / "data").mkdir()
    (tmp / "data" / "a.txt").write_text("1\n")
    package = Unpacked(root, tmp / "home")
    package.edit(
        "modelarts_config.py",
        inputs=f"'file://{tmp}/data/'",
        code_dir=f"'file://{tmp}/code/'",
        boot_file=f"'file://{tmp}/code/start_modelarts.py'",
        out_base_url=f"'file://{tmp}/out/'",
        job_name=f"'{job_name}'",
        train_instance_type="None",
    )
    environment = "mindspore" if launcher == "mindspore" else sys.prefix
    settings = {
        "TRAINSHED_DEVICES": str(devices),
        "TRAINSHED_POLL": "0.2",
        "TRAINSHED_ENVIRONMENT": environment,
    }
    package.edit("config.sh", **settings)
    return package
