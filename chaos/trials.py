"""What a trial does, decided by nothing but the seed, its number and the list of engines."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

ENGINES = ("sandbox", "plain", "podman", "slurm")
TIMEOUT, GRACE = 45.0, 2.0
"""Of every job, in seconds."""
FILES = 600
"""Files that each rank saves: enough for an upload to be met."""
_LOAD = 90.0
"""Seconds that a busy machine may add."""
_SILENCE, _OVERTIME, _AFTER_END = 60.0, 30.0, 15.0
"""As the drivers have them (docs/chaos.md): without a word, after the job's timeout, after the attempt's end."""
_ANSWER, _LIMIT = 300.0, 600.0
"""A cluster's nodes may take so long to answer its driver; Slurm's own time limit is so much longer than the job's."""

MOMENTS = ("random", "submitted", "agents", "barrier", "running", "stopping", "uploading", "ending")
_COMMON = ("driver", "guard", "agent-0", "agent-1", "rank", "grandchild", "foreground")
_TARGETS = {
    "sandbox": (*_COMMON, "bwrap-0", "bwrap-1"),
    "plain": _COMMON,
    "podman": (*_COMMON, "podman", "conmon"),
    "slurm": (*_COMMON[:-1], "bwrap-0", "bwrap-1", "starter-0", "starter-1", "srun", "stepd"),
}


@dataclass(frozen=True)
class Strike:
    """One signal to one kind of process."""

    number: signal.Signals
    target: str

    def __str__(self) -> str:
        return f"{self.number.name} {self.target}"


@dataclass(frozen=True)
class Trial:
    """One run and what is done to it."""

    number: int
    engine: str
    moment: str
    delay: float
    strikes: tuple[Strike, ...]
    is_short: bool
    """Whether the ranks end by themselves soon."""
    has_secret: bool
    """Whether the ranks' output passes through the masking copier."""

    @property
    def is_foreground(self) -> bool:
        return any(strike.target == "foreground" for strike in self.strikes)

    @property
    def limit(self) -> float:
        """Seconds from the strike within which the run must have ended and nothing of it be left."""
        limit = TIMEOUT + _OVERTIME + 2 * GRACE + _AFTER_END + _LOAD
        if any(strike.number == signal.SIGSTOP for strike in self.strikes):
            limit += 2 * _SILENCE  # one waits for another, who waits for a third
        return limit + (_ANSWER + _LIMIT if self.engine == "slurm" else 0.0)

    def __str__(self) -> str:
        kind = "short" if self.is_short else "long"
        what = " + ".join(map(str, self.strikes))
        return f"trial {self.number} on {self.engine}: {what} {self.delay:.2f} s after {self.moment} ({kind} job)"


def make(seed: int, number: int, engines: Sequence[str], kills: bool = False) -> Trial:
    """The trial of that number; with `kills` nothing is frozen, and no job waits for its timeout."""
    choice = random.Random(f"{seed}/{number}")
    engine = engines[number % len(engines)]
    moment = choice.choice(MOMENTS)
    targets = choice.sample(_TARGETS[engine], 2 if choice.random() < 0.3 else 1)
    kinds = (signal.SIGKILL,) if kills else (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)
    return Trial(
        number=number,
        engine=engine,
        moment=moment,
        delay=choice.random() * (5.0 if moment == "random" else choice.choice((0.0, 0.05, 0.5))),
        strikes=tuple(_strike(choice.choice(kinds), target) for target in targets),
        is_short=kills or moment in ("uploading", "ending") or choice.random() < 0.4,
        has_secret=choice.random() < 0.3,
    )


def _strike(number: signal.Signals, target: str) -> Strike:
    # A frozen process of Slurm's own is Slurm's to find.
    return Strike(signal.SIGKILL if target == "stepd" else number, target)
