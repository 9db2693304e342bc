"""What a result promised to be before it was measured.

Rules are frozen into the result folder (`rules.json`) when a benchmark starts,
so that anyone who checks the result later, here or at the Tester, judges it by
the same rules. Data only: nothing here reads runs.
"""

from __future__ import annotations

import math
import re
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

PATTERNS = ("throughput", "quality", "loss")
MAX_RUNS, MAX_NODES, MAX_RANKS = 100, 65_536, 262_144
MAX_PATTERN = 500
MAX_UNBOUNDED = 6
"""Parts of a pattern that match any number of characters: each multiplies the time of the search."""


class BenchModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(BenchModel):
    """The quality a run has to reach."""

    name: str = Field("accuracy", max_length=100)
    value: float
    better: Literal["higher", "lower"] = "higher"
    low: float | None = None
    high: float | None = None
    """The range of possible values; of an accuracy 0 to 1 unless stated."""

    @property
    def range(self) -> tuple[float, float]:
        share = "accuracy" in self.name.lower()
        low = self.low if self.low is not None else 0.0 if share else -math.inf
        high = self.high if self.high is not None else 1.0 if share else math.inf
        return low, high

    def reached(self, value: float) -> bool:
        return value >= self.value if self.better == "higher" else value <= self.value


class DatasetRule(BenchModel):
    """Which data must have been read; a name alone pins nothing."""

    name: str
    checksum: str = ""
    train_samples: int | None = None
    eval_samples: int | None = None

    @property
    def pins(self) -> dict[str, str | int]:
        """What the data set must match besides its name."""
        found = {
            "checksum": self.checksum or None,
            "train_samples": self.train_samples,
            "eval_samples": self.eval_samples,
        }
        return {key: value for key, value in found.items() if value is not None}


class ReferencePoint(BenchModel):
    """Epochs that reference runs needed at one global batch size, one number a run."""

    batch_size: float = Field(gt=0)
    epochs: list[float] = Field(min_length=3, max_length=10_000)


def _usable(patterns: dict[str, str]) -> dict[str, str]:
    for name, text in patterns.items():
        if name not in PATTERNS:
            raise ValueError(f"{name!r} is not read from logs: choose {', '.join(PATTERNS)}")
        if len(text) > MAX_PATTERN:
            raise ValueError(f"{name}: a pattern has at most {MAX_PATTERN} characters")
        try:
            groups = re.compile(text).groups
            unbounded = _unbounded(parser.parse(text))
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{name}: {text!r:.80} is not a valid regular expression: {error}") from error
        if unbounded > MAX_UNBOUNDED:
            raise ValueError(f"{name}: {text!r:.80} repeats too often: searching with it may never end")
        if groups != 1:
            raise ValueError(f"{name}: {text!r} has {groups} groups, one is needed: (…) around the number")
    return patterns


def _unbounded(parsed: Any, repeated: bool = False) -> int:
    """How many parts of a parsed pattern match any number of characters; inside a repetition, too many."""
    found = 0
    for code, argument in parsed:
        kind = str(code)
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, part = argument
            several = int(high) > 1 and int(high) != int(low)
            if several and repeated:
                return MAX_UNBOUNDED + 1
            times = 1 if several else int(high)  # what is written out so many times, in effect
            found += (int(high) > 100) + times * _unbounded(part, repeated or several)
        elif kind == "BRANCH":
            if repeated:
                return MAX_UNBOUNDED + 1
            found += sum(_unbounded(part, repeated) for part in argument[1])
        elif kind in ("GROUPREF", "GROUPREF_EXISTS"):
            return MAX_UNBOUNDED + 1
        elif isinstance(argument, tuple):
            found += sum(
                _unbounded(part, repeated) for part in argument if isinstance(part, parser.SubPattern)
            )
        elif isinstance(argument, parser.SubPattern):
            found += _unbounded(argument, repeated)
    return found


LogPatterns = Annotated[dict[str, str], AfterValidator(_usable)]
"""Regular expressions with one group for `throughput`, `quality` or `loss`, read from rank logs."""


class MllogRule(BenchModel):
    """Under which names the MLLOG file speaks, and which rule set of mlperf-logging can check it."""

    benchmark: str
    division: Literal["open", "closed"] = "open"
    ruleset: str = ""


class Rules(BenchModel):
    workload: str = Field(max_length=200)
    version: str = Field("1", max_length=200)
    scale: str = Field("tiny", max_length=200)
    model: str = Field("", max_length=200)
    framework: str = Field("", max_length=200)
    sample: str = Field("samples", max_length=200)
    """What one sample is: images, sequences, …; the unit of throughput is `<sample>/s`."""
    score: Literal["throughput", "time_to_target"] = "throughput"
    runs: int = Field(default=1, ge=1, le=MAX_RUNS)
    nodes: int = Field(default=1, ge=1, le=MAX_NODES)
    ranks: int = Field(default=1, ge=1, le=MAX_RANKS)
    single_server: bool = False
    """Every node trains alone; the result is the mean over nodes."""
    metered: bool = False
    """Every rank measures with the meter; files that a script wrote itself do not count."""
    scope: Literal["rank", "job"] = "rank"
    """Whose throughput a script without a meter states: each rank its own, or the first rank that of all."""
    seed_parameter: str = Field("seed", max_length=100)
    """The parameter by which a run is given its seed; empty where it is given none."""
    target_parameter: str = Field("target", max_length=100)
    synchronous: bool = False
    """All ranks exchange gradients in every step, so that none can be a step ahead of another."""
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
    max_spread: float = Field(default=0.25, gt=0)
    """Largest (max − min)/mean of the runs; beyond it the result is unstable."""
    max_interval: float = Field(default=0.5, gt=0)
    """Largest half width of the 95% interval over the mean; beyond it the result is unstable."""
    reference_points: list[ReferencePoint] = Field(default_factory=list, max_length=1000)
    log_patterns: LogPatterns = Field(default_factory=dict)
    mllog: MllogRule | None = None

    @property
    def unit(self) -> str:
        return f"{self.sample}/s"

    @property
    def ranks_per_node(self) -> int:
        return max(1, self.ranks // self.nodes)
