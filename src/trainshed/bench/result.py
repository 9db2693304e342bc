"""The model of `result.json`, from which its published JSON schema is made.

Every quantity is either {value, unit, source} or {not_measured: reason}; there
is no third way, so nothing that was not measured can look like a number. It
holds data, not the way it was calculated.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from pydantic import Field, field_validator

from trainshed.bench.judge.rules import BenchModel

SCHEMA = "trainshed.result/1"
NOT_ATTESTED = "not attested: made without a Tester"
ATTESTED = (
    "begun with nonces of a Tester, which was sent the heads of the chains: its verdict says if they hold"
)


class Measured(BenchModel):
    value: float
    unit: str
    source: str = Field(min_length=1)

    @field_validator("value")
    @classmethod
    def finite(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError("must be a finite number; what could not be measured is {not_measured: reason}")
        return value


class NotMeasured(BenchModel):
    not_measured: str = Field(min_length=1)


Quantity = Measured | NotMeasured


def number(quantity: Quantity) -> float | None:
    return quantity.value if isinstance(quantity, Measured) else None


class Reason(BenchModel):
    """Why a run or a result failed, or what a reader should be warned of."""

    code: str
    message: str


class RankResult(BenchModel):
    rank: int
    node: int
    steps: int
    samples: float
    seconds: float
    throughput: Quantity


class NodeResult(BenchModel):
    node: int
    ranks: int
    throughput: Quantity


class Window(BenchModel):
    """The marks between which throughput was counted."""

    start: str
    end: str
    warmup_steps: int
    steps: int
    samples: float
    seconds: float
    evaluation_seconds: float


class SteadyState(BenchModel):
    steady: bool
    largest_deviation: float
    trend: float
    segments: list[float]


class Evaluation(BenchModel):
    seconds: float
    """Since the start mark."""
    epoch: float
    name: str
    value: float


class Phase(BenchModel):
    name: str
    start: float
    """Wall time, seconds since 1970."""
    end: float


class Power(BenchModel):
    average: Quantity
    maximum: Quantity
    energy: Quantity


class FailedProcess(BenchModel):
    """The first failure of a run, with its last lines."""

    reason: str
    process: str = ""
    log: str = ""
    """The process's log below the run's folder."""
    last_lines: list[str] = Field(default_factory=list)


class RunResult(BenchModel):
    index: int = Field(ge=1)
    run_id: str
    folder: str
    status: Literal["valid", "failed"]
    failure: FailedProcess | None = None
    reasons: list[Reason] = Field(default_factory=list)
    warnings: list[Reason] = Field(default_factory=list)
    seed: int | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    dataset: str = ""
    started: float | None = None
    ended: float | None = None
    throughput: Quantity
    throughput_sum_of_ranks: Quantity
    nodes: list[NodeResult] = Field(default_factory=list)
    ranks: list[RankResult] = Field(default_factory=list)
    window: Window | None = None
    steady_state: SteadyState | None = None
    step_time_median: Quantity
    step_time_p99: Quantity
    lost_steps: Quantity
    stragglers: list[int] = Field(default_factory=list)
    quality: Quantity
    time_to_target: Quantity
    epochs_to_target: Quantity
    evaluations: list[Evaluation] = Field(default_factory=list)
    phases: list[Phase] = Field(default_factory=list)
    device_use: Quantity
    cpu_use: Quantity
    power: Power


class Score(BenchModel):
    metric: Literal["throughput", "time_to_target"]
    value: Quantity
    mean: Quantity
    standard_deviation: Quantity
    spread: Quantity
    confidence_low: Quantity
    confidence_high: Quantity
    runs_counted: list[int] = Field(default_factory=list)
    runs_not_converged: list[int] = Field(default_factory=list)
    quality: Quantity
    convergence: str = ""


class Shape(BenchModel):
    nodes: int
    ranks: int


class Result(BenchModel):
    schema_: Literal["trainshed.result/1"] = Field(default="trainshed.result/1", alias="schema")
    id: str
    created: str
    trainshed: str
    workload: str
    version: str
    scale: str
    model: str
    framework: str
    shape: Shape
    status: Literal["valid", "unstable", "failed"]
    """unstable: nothing is wrong, but the runs differ by more than the rules allow."""
    reasons: list[Reason] = Field(default_factory=list)
    warnings: list[Reason] = Field(default_factory=list)
    attestation: str = NOT_ATTESTED
    """Whether a Tester saw the evidence while it was made."""
    score: Score
    scaling_efficiency: Quantity
    runs: list[RunResult]


def to_json(result: Result) -> str:
    return json.dumps(result.model_dump(by_alias=True), indent=2, sort_keys=False, allow_nan=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The published schema (JSON Schema 2020-12) of result.json."""
    schema = Result.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Trainshed benchmark result"
    return schema
