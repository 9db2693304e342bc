"""A workload: job + data set + quality target + what to measure + shapes, read from `workload.yaml`.

A folder with `workload.yaml` is a workload, ours and users' alike. It has
implementations (one per framework) and scales (`tiny` trains on a CPU in about a
minute, `full` is for real machines). Here a workload becomes rules and jobs;
running them is the runner's work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from trainshed import shipped, yamlfile
from trainshed.api.makers import make_folder
from trainshed.bench.judge.rules import (
    BenchModel,
    DatasetRule,
    LogPatterns,
    MllogRule,
    ReferencePoint,
    Rules,
    Target,
)
from trainshed.errors import NotFoundError, UsageError
from trainshed.files import read_regular
from trainshed.payload.common.trainshed_meter import dataset_checksum
from trainshed.spec.job import JobSpec, Resources
from trainshed.spec.load import load_job
from trainshed.spec.mistakes import mistakes_of, summary_of

NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,63}\Z")


class Dataset(BenchModel):
    """Where the data are, how they are made when they can be, and the checksum they must have."""

    name: str
    folder: str = Field(
        "",
        description="a folder relative to the workload, or a URL; by default `data/<name>` in Trainshed's home",
    )
    maker: str = Field(
        "", description="Python script of the workload that is given the folder and makes the data"
    )
    checksum: str = ""
    train_samples: int | None = None
    eval_samples: int | None = None

    @property
    def is_remote(self) -> bool:
        return "://" in self.folder


class Passed(BenchModel):
    """The names of the arguments for what a run passes to the script; null: not passed."""

    data: str | None = "data"
    out: str | None = "out"
    seed: str | None = "seed"
    target: str | None = "target"


class Implementation(BenchModel):
    """One framework's code."""

    code: str
    entry: str = "train.py"
    launcher: str
    environment: str | None = None
    args: list[str | int | float] = Field(
        default_factory=list, description="positional arguments, before all others"
    )
    parameters: dict[str, str | int | float | bool] = Field(default_factory=dict)
    passed: Passed = Passed()
    env: dict[str, str] = Field(default_factory=dict)


class Scale(BenchModel):
    """One size of the workload."""

    shape: str = "1x1"
    kind: str = "cpu"
    runs: int = 3
    parameters: dict[str, str | int | float | bool] = Field(default_factory=dict)
    dataset: Dataset | None = Field(None, description="none: the script brings its own data")
    target: Target | None = None
    score: Literal["throughput", "time_to_target"] = "throughput"
    warmup_steps: int | None = None
    min_steps: int = 2
    max_prepare_seconds: float = 1800
    max_spread: float = 0.25
    max_interval: float = 0.5
    timeout: str = "1h"
    reference_points: list[ReferencePoint] = Field(default_factory=list)


class Workload(BenchModel):
    name: str
    version: str = "1"
    model: str
    sample: str = "samples"
    metered: bool = False
    scope: Literal["rank", "job"] = "rank"
    synchronous: bool = False
    mllog: MllogRule | None = None
    log_patterns: LogPatterns = Field(default_factory=dict)
    implementations: dict[str, Implementation] = Field(min_length=1)
    scales: dict[str, Scale] = Field(min_length=1)


class Bench(BenchModel):
    """A workload with everything chosen: what will be run and by which rules."""

    folder: str
    workload: Workload
    framework: str
    scale_name: str
    shape: str
    runs: int
    home: str
    """Where data sets without their own folder are kept."""
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
        if dataset is None:
            return ""
        if not dataset.folder:
            return str(Path(self.home) / "data" / dataset.name)
        return dataset.folder if dataset.is_remote else str((Path(self.folder) / dataset.folder).resolve())


def load(path: Path) -> Workload:
    """Read a workload; a mistake names the field, the value and the remedy."""
    file = path / "workload.yaml" if path.is_dir() else path
    try:
        raw = yamlfile.parse(read_regular(file, yamlfile.LONGEST), str(file))
        workload = Workload.model_validate(raw)
    except FileNotFoundError as error:
        raise NotFoundError(f"{file} does not exist", "give a folder that holds workload.yaml") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error}", "give a readable file") from error
    except ValidationError as error:
        raise UsageError(
            f"{file}: {summary_of(error, Workload)}",
            "`trainshed bench new FOLDER` writes one to compare with",
        ) from error
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
    *,
    home: Path,
) -> Bench:
    """Fix every choice; what is not said comes from the workload. `path` may name a shipped workload.

    Data sets lie in Trainshed's `home`, unless `data` says where.
    """
    path = shipped.workload(path)
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
        home=str(home),
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
        metered=workload.metered,
        scope=workload.scope,
        seed_parameter=bench.implementation.passed.seed or "",
        target_parameter=bench.implementation.passed.target or "",
        synchronous=workload.synchronous,
        max_spread=scale.max_spread,
        max_interval=scale.max_interval,
        warmup_steps=scale.warmup_steps,
        min_steps=scale.min_steps,
        target=scale.target,
        dataset=None
        if dataset is None
        else DatasetRule(
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


def organiser_rules(workload: Workload, brought: Rules) -> Rules:
    """The rules of this copy of a workload for a result of some framework, scale and shape.

    A result may have more runs than the scale asks for, and its shape is its own.
    """
    _known(brought.framework, workload.implementations, "framework")
    _known(brought.scale, workload.scales, "scale")
    bench = Bench(
        folder=".",
        home=".",
        workload=workload,
        framework=brought.framework,
        scale_name=brought.scale,
        shape=f"{brought.nodes}x{brought.ranks_per_node}",
        runs=max(workload.scales[brought.scale].runs, brought.runs),
        single_server=brought.single_server,
    )
    return rules_of(bench)


def job_of(bench: Bench, seed: int) -> JobSpec:
    """The job of one run: the implementation with the scale's parameters, the data and a seed."""
    scale, code = bench.scale, bench.implementation
    inputs = [_channel("data", code.passed.data, source=bench.data_folder)] if bench.data_folder else []
    resources = _resources(bench.shape).model_dump() | {"kind": scale.kind}
    raw: dict[str, Any] = {
        "name": f"{bench.workload.name}-{bench.framework}"[:64],
        "launcher": code.launcher,
        "code": str(Path(bench.folder, code.code).resolve()),
        "entry": code.entry,
        "args": [str(argument) for argument in code.args],
        "parameters": parameters_of(bench, seed),
        "inputs": inputs,
        "outputs": [_channel("out", code.passed.out)],
        "resources": resources,
        "timeout": scale.timeout,
        "env": dict(code.env),
        "mode": "single_server" if bench.single_server else "distributed",
    }
    if code.environment:
        raw["environment"] = code.environment
    return load_job(raw)


def parameters_of(bench: Bench, seed: int) -> dict[str, str | int | float | bool]:
    """The implementation's, the scale's, and those of the run that the script wants."""
    scale, code = bench.scale, bench.implementation
    found = {**code.parameters, **scale.parameters}
    if code.passed.seed:
        found[code.passed.seed] = seed
    if scale.target is not None and code.passed.target:
        found[code.passed.target] = scale.target.value
    return found


def _channel(usual: str, name: str | None, **fields: str) -> dict[str, str]:
    """A channel under the argument's name; one that is not passed is found by its variable alone."""
    return {"name": name or usual, "access": "argument" if name else "env", **fields}


def prepare_data(bench: Bench, environ: Mapping[str, str]) -> None:
    """Make the data set when it is missing and can be made (with these variables), and check what is there."""
    dataset = bench.scale.dataset
    if dataset is None or "://" in bench.data_folder:
        return  # the ranks say what they read, and are held to the checksum
    folder = Path(bench.data_folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        if not dataset.maker:
            raise NotFoundError(
                f"the data set {dataset.name} is not in {folder}",
                "put it there, or pass its location with --data",
            )
        if folder.is_dir():
            folder.rmdir()
        make_folder(Path(bench.folder, dataset.maker), folder, environ)
    if dataset.checksum and (found := dataset_checksum(str(folder))) != dataset.checksum:
        text = f"{folder} has checksum {found}, the workload asks for {dataset.checksum}"
        raise UsageError(text, "remove the folder to generate it again", code="dataset-wrong")


def _resources(shape: str) -> Resources:
    try:
        return Resources.model_validate(shape)
    except (ValidationError, ValueError) as error:
        text = mistakes_of(error, Resources)[0].remedy if isinstance(error, ValidationError) else str(error)
        raise UsageError(f"shape {shape!r}: {text}", "such as 2x2: 2 nodes with 2 devices each") from error


def _known(name: str, among: dict[str, Any], what: str) -> None:
    if name not in among:
        raise UsageError(f"there is no {what} {name!r}", f"choose one of {', '.join(among)}")
