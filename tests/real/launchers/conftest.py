"""Real runs of the training scripts beside this file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import ENVIRONMENTS, Shed

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Finished:
    """An ended run: its exit code, what its processes wrote, and when things happened."""

    id: str
    path: Path
    code: int
    said: str
    shown: dict[str, Any]

    @property
    def text(self) -> str:
        logs = [log for log in sorted(self.path.glob("node-*/*.log")) if log.name != "agent.log"]
        return "".join(log.read_text(errors="replace") for log in logs)

    @property
    def outcome(self) -> dict[str, Any]:
        return self.shown

    @property
    def trained(self) -> dict[int, tuple[int, str, str]]:
        """rank → world size, node, sum of all ranks' numbers, as the ranks themselves say."""
        found = re.findall(r"TRAINED rank (\d+) of (\d+) on (\S+).*? sum (\d+)", self.text)
        return {int(rank): (int(size), node, total) for rank, size, node, total in found}

    @property
    def seconds_after_death(self) -> float:
        (died,) = set(re.findall(r"DIES ([\d.]+)", self.text))
        return float(self.shown["ended"]) - float(died)


@pytest.fixture
def train(shed: Shed) -> Callable[..., Finished]:
    """Run a job with the training scripts as its code, to its end."""

    def run(environment: str | None = None, shape: str = "2x2", **fields: Any) -> Finished:
        if environment is not None:
            if not (ENVIRONMENTS / environment / "bin" / "python").exists():
                pytest.skip(f"environment {environment} is not there: trainshed env create {environment}")
            fields["environment"] = environment
        job = shed.job("job", code=str(SCRIPTS), resources=shape, **fields)
        done = shed.cli("run", job)
        found = re.search(r"^run (\S+)$", done.stderr, re.M)
        assert found, done.stderr
        return Finished(found[1], shed.path(found[1]), done.returncode, done.stderr, shed.show(found[1]))

    return run
