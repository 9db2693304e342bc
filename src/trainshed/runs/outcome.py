"""Outcome: how a run or an attempt ended, and the first failure with its last lines."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from typing import Any

from trainshed.runs.states import Cause, RunState


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong."""

    cause: Cause
    reason: str
    node: int | None = None
    process: str | None = None
    exit_code: int | None = None
    log: str | None = None
    last_lines: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v not in (None, ())}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Failure:
        """ValueError, KeyError or TypeError when the data are not a failure."""
        numbers = {k: data.get(k) for k in ("node", "exit_code")}
        texts = {k: data.get(k) for k in ("process", "log")}
        if not all(value is None or isinstance(value, int) for value in numbers.values()):
            raise ValueError(f"invalid failure: {numbers}")
        if not all(value is None or isinstance(value, str) for value in texts.values()):
            raise ValueError(f"invalid failure: {texts}")
        lines = tuple(str(line) for line in data.get("last_lines", ()))
        return cls(Cause(data["cause"]), str(data["reason"]), **numbers, **texts, last_lines=lines)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A final state with the exit code that mirrors it."""

    state: RunState
    exit_code: int
    failure: Failure | None = None

    @classmethod
    def of(cls, failure: Failure | None) -> Outcome:
        if failure is None:
            return cls(RunState.SUCCEEDED, 0)
        if failure.cause is Cause.STOP:
            return cls(RunState.STOPPED, RunState.STOPPED.exit_code, failure)
        if failure.cause is Cause.TIMEOUT:
            return cls(RunState.FAILED, 124, failure)
        return cls(RunState.FAILED, failure.exit_code or RunState.FAILED.exit_code, failure)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"state": self.state.value, "exit_code": self.exit_code}
        return data | {"failure": self.failure.to_json()} if self.failure else data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """ValueError, KeyError or TypeError when the data are not an outcome."""
        failure = data.get("failure")
        return cls(
            RunState(data["state"]), int(data["exit_code"]), Failure.from_json(failure) if failure else None
        )


def exit_code_of(returncode: int) -> int:
    """A shell's exit code for a process' return code (negative: killed by a signal)."""
    return returncode if returncode >= 0 else 128 - returncode


def describe_exit(returncode: int) -> str:
    """`exited with 3` or `was killed by SIGKILL`."""
    if returncode >= 0:
        return f"exited with {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
