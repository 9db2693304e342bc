"""One trial, from the submission to the verdict."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos import verdict
from chaos import yard as yards
from chaos.trials import Strike, Trial
from chaos.yard import Yard
from trainshed.api.run import Run
from trainshed.runs.events import AttemptFinished, PhaseFinished, ProcessExited, RanksStarted

_MOMENT = 150.0
"""Seconds for a moment to come, on a busy machine."""
_TARGET = 4.0
"""Seconds to wait for the process that is to be struck; then another is."""
_AGAIN = 3.0
"""Seconds after which an end is read again."""


@dataclass
class Result:
    """What came of a trial."""

    trial: Trial
    run: str = ""
    struck: tuple[Strike, ...] = ()
    state: str = ""
    reason: str = ""
    seconds: float = 0.0
    """From the strike to the final state."""
    gone: float = 0.0
    """From the strike until nothing was left."""
    violations: list[str] = field(default_factory=list)
    end: bytes = b""
    """The record of the end, to be compared later."""

    def to_json(self) -> dict[str, object]:
        return {
            "trial": self.trial.number,
            "engine": self.trial.engine,
            "moment": self.trial.moment,
            "delay": round(self.trial.delay, 3),
            "job": "short" if self.trial.is_short else "long",
            "struck": [str(strike) for strike in self.struck],
            "run": self.run,
            "state": self.state,
            "reason": self.reason,
            "seconds": round(self.seconds, 1),
            "gone": round(self.gone, 1),
            "violations": self.violations,
        }


def carry_out(trial: Trial, yard: Yard, seed: int) -> Result:
    """The trial, and all that is wrong with its end."""
    result = Result(trial)
    run, command = yard.submit(trial)
    result.run = run.id
    try:
        _await_moment(trial, yard, run)
        stopped = trial.moment == "stopping"
        if stopped and not run.summary().state.is_final:
            run.stop("the campaign stops it")
        time.sleep(trial.delay)
        own = {"foreground": [command.pid]} if command else {}
        result.struck = _strike(trial, yard, run, own, random.Random(f"{seed}/{trial.number}/instead"))
        began = time.monotonic()
        pause = 2.0 if trial.engine == "slurm" else 0.5
        if not _until(lambda: run.refresh().state.is_final, trial.limit, pause):
            result.violations.append(f"no end within {trial.limit:.0f} s: {run.summary().state.value}")
        summary = run.summary()
        result.state, result.reason = summary.state.value, summary.reason
        result.seconds = time.monotonic() - began
        if summary.state.is_final:
            result.end = (run.directory.events_folder / "end.jsonl").read_bytes()
            result.violations += verdict.false_end(trial, result.struck, run, summary, stopped)
        if summary.state.is_final:
            _wake_guard(result, yard, run)
        left = trial.limit - result.seconds + 30.0
        if not _until(lambda: not yard.leftovers(run), left, pause):
            result.violations.append(f"left behind: {'; '.join(yard.leftovers(run))}")
        result.gone = time.monotonic() - began
        time.sleep(_AGAIN)
        check_again(result, run)
    finally:
        if command:
            command.kill()
            command.wait()
        if result.violations or not result.end:
            yard.clear(run)
    return result


def _wake_guard(result: Result, yard: Yard, run: Run) -> None:
    """Nobody watches the last process of a run: a guard that was frozen after the end stays, and holds nothing.

    It must end once it may go on.
    """
    if any(strike.target == "guard" and strike.number == signal.SIGSTOP for strike in result.struck):
        for pid in yard.processes(run).get("guard", ()):
            yards.strike(pid, signal.SIGCONT)


def check_again(result: Result, run: Run) -> None:
    """A final state never changes."""
    if not result.end:
        return
    now = run.refresh()
    if (
        run.directory.events_folder / "end.jsonl"
    ).read_bytes() != result.end or now.state.value != result.state:
        result.violations.append(f"its final state changed from {result.state} to {now.state.value}")


def _await_moment(trial: Trial, yard: Yard, run: Run) -> None:
    def seen(kind: type) -> bool:
        return any(isinstance(event.body, kind) for event in run.events())

    def agents() -> bool:
        return any(name.startswith(("agent", "bwrap", "starter")) for name in yard.processes(run))

    moments: dict[str, Callable[[], bool]] = {
        "agents": agents,
        "barrier": lambda: seen(PhaseFinished),
        "running": lambda: seen(RanksStarted),
        "stopping": lambda: seen(RanksStarted),
        "uploading": lambda: seen(ProcessExited),
        "ending": lambda: seen(AttemptFinished),
    }
    if reached := moments.get(trial.moment):
        _until(lambda: reached() or run.summary().state.is_final, _MOMENT, 0.02)


def _strike(
    trial: Trial, yard: Yard, run: Run, own: dict[str, list[int]], choice: random.Random
) -> tuple[Strike, ...]:
    """What was struck: where a target is not there, another process of the run."""
    wanted = {strike.target for strike in trial.strikes}
    passing = trial.moment in ("stopping", "uploading", "ending")
    deadline = time.monotonic() + (0.0 if passing else _TARGET)
    while True:
        found = yard.processes(run) | own
        if wanted <= found.keys() or time.monotonic() > deadline or run.summary().state.is_final:
            break
        time.sleep(0.02)
    done = []
    for strike in trial.strikes:
        name = strike.target
        if name not in found:
            others = sorted(set(found) - wanted - {item.target for item in done} - {"foreground"})
            if not others:
                continue
            name = choice.choice(others)
        if name == "stepd" and strike.number != signal.SIGKILL:
            continue
        if yards.strike(choice.choice(found[name]), strike.number):
            done.append(Strike(strike.number, name))
    return tuple(done)


def _until(condition: Callable[[], bool], seconds: float, pause: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
