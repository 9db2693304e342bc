"""A workload: job + data set + quality target + what to measure + shapes, read from `workload.yaml`.

A folder with `workload.yaml` is a workload, ours and users' alike. It has
implementations (one a framework) and scales (`tiny` trains on a CPU in about a
minute, `full` is for real machines). Here a workload becomes rules and jobs;
running them is the runner's work.
"""

from __future__ import annotations

import errno
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from trainshed.bench.rules import DatasetRule, LogPatterns, MllogRule, Model, ReferencePoint, Rules, Target
from trainshed.contracts.site.common.trainshed_meter import dataset_checksum
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.spec.job import JobSpec, Resources
from trainshed.spec.load import load_job

MAKER_SECONDS = 1800
MARK = "BENCH_RUN_MARK"
NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,63}\Z")


class Dataset(Model):
    """Where the data are, how they are made when they can be, and the checksum they must have."""

    name: str
    folder: str = Field(description="a folder relative to the workload, or a URL")
    maker: str = Field(
        "", description="Python script of the workload that is given the folder and makes the data"
    )
    checksum: str = ""
    train_samples: int | None = None
    eval_samples: int | None = None

    @property
    def is_remote(self) -> bool:
        return "://" in self.folder


class Implementation(Model):
    """One framework's code."""

    code: str
    entry: str = "train.py"
    launcher: str
    environment: str | None = None
    parameters: dict[str, str | int | float | bool] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


class Scale(Model):
    """One size of the workload."""

    shape: str = "1x1"
    kind: str = "cpu"
    runs: int = 3
    parameters: dict[str, str | int | float | bool] = Field(default_factory=dict)
    dataset: Dataset
    target: Target | None = None
    score: Literal["throughput", "time_to_target"] = "throughput"
    warmup_steps: int | None = None
    min_steps: int = 2
    max_prepare_seconds: float = 1800
    timeout: str = "1h"
    reference_points: list[ReferencePoint] = Field(default_factory=list)


class Workload(Model):
    name: str
    version: str = "1"
    model: str
    sample: str = "samples"
    mllog: MllogRule | None = None
    log_patterns: LogPatterns = Field(default_factory=dict)
    implementations: dict[str, Implementation] = Field(min_length=1)
    scales: dict[str, Scale] = Field(min_length=1)


class Bench(Model):
    """A workload with everything chosen: what will be run and by which rules."""

    folder: str
    workload: Workload
    framework: str
    scale_name: str
    shape: str
    runs: int
    single_server: bool = False
    data: str = ""
    """Where the data are instead of where the workload says; their checksum stays the same."""

    @property
    def implementation(self) -> Implementation:
        return self.workload.implementations[self.framework]

    @property
    def scale(self) -> Scale:
        return self.workload.scales[self.scale_name]

    @property
    def data_folder(self) -> str:
        if self.data:
            return self.data if "://" in self.data else str(Path(self.data).resolve())
        dataset = self.scale.dataset
        return dataset.folder if dataset.is_remote else str((Path(self.folder) / dataset.folder).resolve())


def load(path: Path) -> Workload:
    """Read a workload; a mistake names the field, the value and the remedy."""
    file = path / "workload.yaml" if path.is_dir() else path
    try:
        raw = yaml.safe_load(file.read_text("utf-8"))
        workload = Workload.model_validate(raw)
    except FileNotFoundError:
        raise NotFoundError(f"{file} does not exist", "give a folder that holds workload.yaml") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is no YAML: {error}", "correct the line that is named") from None
    except ValidationError as error:
        first: Any = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise UsageError(
            f"{file}: {where}: {first['msg']}", f"found {str(first.get('input'))[:80]!r}"
        ) from None
    if not NAME.match(workload.name):
        raise UsageError(f"{file}: name {workload.name!r}", "use small letters, digits, dots and dashes")
    return workload


def choose(
    path: Path,
    framework: str = "",
    scale: str = "tiny",
    shape: str = "",
    runs: int = 0,
    single_server: bool = False,
    data: str = "",
) -> Bench:
    """Fix every choice; what is not said comes from the workload."""
    workload = load(path)
    name = framework or next(iter(workload.implementations))
    _known(name, workload.implementations, "framework")
    _known(scale, workload.scales, "scale")
    chosen = workload.scales[scale]
    return Bench(
        folder=str(path.resolve() if path.is_dir() else path.resolve().parent),
        workload=workload,
        framework=name,
        scale_name=scale,
        shape=shape or chosen.shape,
        runs=runs or chosen.runs,
        single_server=single_server,
        data=data,
    )


def rules_of(bench: Bench) -> Rules:
    workload, scale = bench.workload, bench.scale
    resources = _resources(bench.shape)
    dataset = scale.dataset
    return Rules(
        workload=workload.name,
        version=workload.version,
        scale=bench.scale_name,
        model=workload.model,
        framework=bench.framework,
        sample=workload.sample,
        score=scale.score,
        runs=bench.runs,
        nodes=resources.nodes,
        ranks=resources.nodes * resources.devices,
        single_server=bench.single_server,
        warmup_steps=scale.warmup_steps,
        min_steps=scale.min_steps,
        target=scale.target,
        dataset=DatasetRule(
            name=dataset.name,
            checksum=dataset.checksum,
            train_samples=dataset.train_samples,
            eval_samples=dataset.eval_samples,
        ),
        max_prepare_seconds=scale.max_prepare_seconds,
        reference_points=scale.reference_points,
        log_patterns=workload.log_patterns,
        mllog=workload.mllog,
    )


def job_of(bench: Bench, seed: int, mark: str = "") -> JobSpec:
    """The job of one run: the implementation with the scale's parameters, the data, a seed and its mark."""
    scale, code = bench.scale, bench.implementation
    parameters = {**code.parameters, **scale.parameters, "seed": seed}
    if scale.target is not None:
        parameters["target"] = scale.target.value
    resources = _resources(bench.shape).model_dump() | {"kind": scale.kind}
    raw: dict[str, Any] = {
        "name": f"{bench.workload.name}-{bench.framework}"[:64],
        "launcher": code.launcher,
        "code": str(Path(bench.folder, code.code).resolve()),
        "entry": code.entry,
        "parameters": parameters,
        "inputs": [{"name": "data", "source": bench.data_folder}],
        "outputs": [{"name": "out"}],
        "resources": resources,
        "timeout": scale.timeout,
        "env": {**code.env, **({MARK: mark} if mark else {})},
        "mode": "single_server" if bench.single_server else "distributed",
    }
    if code.environment:
        raw["environment"] = code.environment
    return load_job(raw)


def prepare_data(bench: Bench) -> None:
    """Make the data set when it is missing and can be made, and check what is there."""
    dataset = bench.scale.dataset
    if "://" in bench.data_folder:
        return  # the ranks say what they read, and are held to the checksum
    folder = Path(bench.data_folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        if not dataset.maker:
            raise NotFoundError(
                f"the data set {dataset.name} is not in {folder}",
                "put it there, or say where it is with --data",
            )
        _make_data(Path(bench.folder, dataset.maker), folder)
    if dataset.checksum and (found := dataset_checksum(str(folder))) != dataset.checksum:
        text = f"{folder} has checksum {found}, the workload asks for {dataset.checksum}"
        raise UsageError(text, "remove the folder to have it made again", code="dataset-wrong")


def _make_data(maker: Path, folder: Path) -> None:
    """Have the data made beside the folder: they take its place only when they are whole."""
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        _run_maker(maker, part)
        part.rename(folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # another process has made the same data meanwhile
            raise TrainshedError(f"{maker}: {error}", "it has to make the folder it is given") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run_maker(maker: Path, folder: Path) -> None:
    by_hand = "run it by hand to see all it says"
    command = [sys.executable, str(maker), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAKER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TrainshedError(f"{maker} did not end within {MAKER_SECONDS} s", by_hand) from None
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise TrainshedError(f"{maker} failed: {' '.join(words)}", by_hand)


def _resources(shape: str) -> Resources:
    try:
        return Resources.model_validate(shape)
    except (ValidationError, ValueError) as error:
        text = f"{error.errors()[0]['msg']}" if isinstance(error, ValidationError) else str(error)
        raise UsageError(f"shape {shape!r}: {text}", "write nodes x devices a node, such as 2x2") from None


def _known(name: str, among: dict[str, Any], what: str) -> None:
    if name not in among:
        raise UsageError(f"there is no {what} {name!r}", f"choose one of {', '.join(among)}")
