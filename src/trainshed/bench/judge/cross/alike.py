"""Rules about invented times: real steps are neither even nor round, and no two ranks or runs are alike.

Two series of step times are compared by their turns: is each step longer than
the one before it? Noise, rounding, stretching and shifting change few of them,
while independent runs agree in about half. Bits of one large integer, so that a
comparison costs a few operations on machine words.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import gt, sub

from trainshed.bench.judge.cross import Case, rule
from trainshed.bench.measure.meter_file import MeterSession
from trainshed.bench.measure.statistics import median

MIN_STEPS = 20
MIN_TURNS = 64
TIME_UNIT = 1.5e-6
"""Times are written to the microsecond."""
ROUND = 1e-4
"""Multiples of it are one in a hundred of real times."""
MOST_ALIKE = 0.8
MOST_OVER_SHIFTED = 0.2
"""What a common rhythm of two runs cannot explain: it would show with the series shifted, too."""
SHIFTS = range(1, 65)


@dataclass(frozen=True)
class Turns:
    """Of a series of step times, whether each is longer than the one before it: one bit each."""

    count: int
    bits: int

    def agreement(self, other: Turns, shift: int = 0) -> float:
        """The share of equal turns, the other series shifted by so many steps."""
        count = min(self.count, other.count - shift)
        if count < 1:
            return 0.0
        mask = (1 << count) - 1
        return 1 - ((self.bits ^ (other.bits >> shift)) & mask).bit_count() / count

    def is_alike(self, other: Turns) -> bool:
        """Whether one series was made from the other."""
        count = min(self.count, other.count)
        if count < MIN_TURNS or self.agreement(other) < MOST_ALIKE:
            return False
        shifted = max(self.agreement(other, shift) for shift in SHIFTS if shift < count / 2)
        return self.agreement(other) - shifted > MOST_OVER_SHIFTED


def turns_of(session: MeterSession) -> Turns:
    times = step_times(session)
    longer = bytearray(map(gt, islice(times, 1, None), times))
    if not longer:
        return Turns(0, 0)
    # The first step is the lowest bit.
    return Turns(len(longer), int(longer[::-1].translate(_DIGITS), 2))


_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


def step_times(session: MeterSession) -> array[float]:
    """Seconds from the end of each entry to the end of the next."""
    return array("d", map(sub, islice(session.at, 1, None), session.at))


@rule("times-even")
def times_vary(case: Case) -> Iterator[str]:
    """The steps of a rank do not all take the same time."""
    for rank, session in case.sessions:
        times = step_times(session)
        if len(times) < MIN_STEPS:
            continue
        usual = median(times)
        even = sum(1 for t in times if abs(t - usual) <= TIME_UNIT)
        # Steps of a few microseconds are all of the same length by nature.
        if usual > 100 * TIME_UNIT and even > len(times) / 2:
            yield f"rank {rank.rank}: {even} of {len(times)} steps took exactly {usual:.6f} s"


@rule("times-rounded")
def times_not_round(case: Case) -> Iterator[str]:
    """The times of a rank's steps are not round numbers."""
    for rank, session in case.sessions:
        if len(session.at) < MIN_STEPS:
            continue
        round_ = sum(1 for t in session.at if abs(t / ROUND - round(t / ROUND)) < 0.01)
        if round_ > len(session.at) / 2:
            yield f"rank {rank.rank}: {round_} of {len(session.at)} step times are multiples of {ROUND * 1000:g} ms"


@rule("ranks-identical")
def ranks_differ(case: Case) -> Iterator[str]:
    """No two ranks of a run have the same step times."""
    seen: list[tuple[int, Sequence[float]]] = []
    for rank, session in case.sessions:
        times = step_times(session)
        if len(times) < MIN_STEPS:
            continue
        # Neighbours and the first rank: comparing all with all would not be linear.
        for other, known in (seen[:1] + seen[-1:])[: len(seen)]:
            count = min(len(times), len(known))
            same = sum(1 for a, b in zip(times, known, strict=False) if abs(a - b) <= TIME_UNIT)
            if same > count / 2 and median(times) > 100 * TIME_UNIT:
                yield f"rank {other} and rank {rank.rank}: {same} of {count} steps took exactly the same time"
        seen = [*seen[:1], (rank.rank, times)]
