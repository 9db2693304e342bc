"""What a result promised to be before it was measured.

Rules are frozen into the result folder (`rules.json`) when a benchmark starts,
so that whoever checks the result later, here or at the Tester, judges it by
the same words. Data only: nothing here reads runs.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

PATTERNS = ("throughput", "quality", "loss")


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(Model):
    """The quality a run has to reach."""

    name: str = "accuracy"
    value: float
    better: Literal["higher", "lower"] = "higher"

    def reached(self, value: float) -> bool:
        return value >= self.value if self.better == "higher" else value <= self.value


class DatasetRule(Model):
    """Which data must have been read; a name alone pins nothing."""

    name: str
    checksum: str = ""
    train_samples: int | None = None
    eval_samples: int | None = None

    @property
    def pins(self) -> dict[str, str | int]:
        """What the data are held to besides their name."""
        found = {
            "checksum": self.checksum or None,
            "train_samples": self.train_samples,
            "eval_samples": self.eval_samples,
        }
        return {key: value for key, value in found.items() if value is not None}


class ReferencePoint(Model):
    """Epochs that reference runs needed at one global batch size, one number a run."""

    batch_size: float = Field(gt=0)
    epochs: list[float] = Field(min_length=3)


def _usable(patterns: dict[str, str]) -> dict[str, str]:
    for name, text in patterns.items():
        if name not in PATTERNS:
            raise ValueError(f"{name!r} is not read from logs: choose {', '.join(PATTERNS)}")
        try:
            groups = re.compile(text).groups
        except re.error as error:
            raise ValueError(f"{name}: {text!r} is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"{name}: {text!r} has {groups} groups, one is needed: (…) around the number")
    return patterns


LogPatterns = Annotated[dict[str, str], AfterValidator(_usable)]
"""Regular expressions with one group for `throughput`, `quality` or `loss`, read from rank logs."""


class MllogRule(Model):
    """Under which names the MLLOG file speaks, and which rule set of mlperf-logging can check it."""

    benchmark: str
    division: Literal["open", "closed"] = "open"
    ruleset: str = ""


class Rules(Model):
    workload: str
    version: str = "1"
    scale: str = "tiny"
    model: str = ""
    framework: str = ""
    sample: str = "samples"
    """What one sample is: images, sequences, …; the unit of throughput is `<sample>/s`."""
    score: Literal["throughput", "time_to_target"] = "throughput"
    runs: int = Field(default=1, ge=1, le=100)
    nodes: int = Field(default=1, ge=1)
    ranks: int = Field(default=1, ge=1)
    single_server: bool = False
    """Every node trains alone; the result is the mean over nodes."""
    warmup_steps: int | None = Field(default=None, ge=0)
    """Steps left out at the start; without a number, a tenth of the steps, at least 1, at most 50."""
    min_steps: int = Field(default=2, ge=1)
    """Fewer steps than this mean that training ended early."""
    target: Target | None = None
    dataset: DatasetRule | None = None
    max_prepare_seconds: float = Field(default=1800, gt=0)
    """Longest time before the start mark that may stay off the clock."""
    steady_tolerance: float = Field(default=0.1, gt=0)
    straggler_tolerance: float = Field(default=0.1, gt=0)
    reference_points: list[ReferencePoint] = Field(default_factory=list)
    log_patterns: LogPatterns = Field(default_factory=dict)
    mllog: MllogRule | None = None

    @property
    def unit(self) -> str:
        return f"{self.sample}/s"

    @property
    def ranks_per_node(self) -> int:
        return max(1, self.ranks // self.nodes)
