"""Reads the file of one rank's meter in one pass: marks one by one, steps as columns.

It judges nothing: broken, lost or reordered lines become defects. Memory is
three numbers per step.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import lt
from typing import Any

from trainshed.bench.measure.reading import finite

FORMATS = {1}
# Marks of several threads may be written down a moment out of order.
ORDER_SLACK = 0.001

Report = Callable[[str, str], None]
"""Takes the code and the message of a defect."""


@dataclass(frozen=True, slots=True)
class Mark:
    event: str
    mono: float
    wall: float
    fields: dict[str, Any]


@dataclass
class MeterSession:
    """What one process of a rank recorded, from its first line to its last.

    The k-th entry of `counts`, `samples` and `at`: so many steps with so many samples had ended at that moment.
    """

    rank: int
    world: int
    host: str
    pid: int = 0
    marks: list[Mark] = field(default_factory=list)
    counts: array[int] = field(default_factory=lambda: array("q"))
    samples: array[float] = field(default_factory=lambda: array("d"))
    at: array[float] = field(default_factory=lambda: array("d"))
    mono: array[float] = field(default_factory=lambda: array("d"))
    wall: array[float] = field(default_factory=lambda: array("d"))
    """Both clocks of every line."""
    step_count: int = 0
    closed: bool = False

    def first(self, event: str) -> Mark | None:
        return next((m for m in self.marks if m.event == event), None)

    def all(self, event: str) -> list[Mark]:
        return [m for m in self.marks if m.event == event]

    def wall_of(self, mono: float) -> float:
        """The wall time of a monotonic time, by the nearest line with both clocks."""
        index = min(bisect_left(self.mono, mono), len(self.mono) - 1)
        return self.wall[index] + (mono - self.mono[index])

    @property
    def clock_offset(self) -> float:
        """Wall minus monotonic clock at the first line: when the machine was started."""
        return self.wall[0] - self.mono[0]

    def clock_spread(self) -> float:
        """How far the two clocks moved against one another."""
        offsets = [wall - mono for wall, mono in zip(self.wall, self.mono, strict=True)]
        return max(offsets) - min(offsets)


def read_sessions(
    lines: Iterable[tuple[int, dict[str, Any] | None]], name: str, report: Report
) -> list[MeterSession]:
    """The sessions of one meter file."""
    sessions: list[MeterSession] = []
    session: MeterSession | None = None
    expected = 0
    for _, line in lines:
        if line is None:
            continue  # already reported when the lines were read
        try:
            event, mono, wall, seq = (
                str(line["event"]),
                finite(line["mono"]),
                finite(line["wall"]),
                line["seq"],
            )
            if event == "meter":
                expected = 0
                session = _begin(line)
                sessions.append(session)
                if line.get("format") not in FORMATS:
                    report(
                        "meter-format", f"{name} has format {line.get('format')!r:.40}, which is not known"
                    )
            if session is None:
                report("meter-header", f"{name} does not begin with a meter line")
                return sessions
            if seq != expected:
                report(
                    "meter-lines-lost",
                    f"{name}: line {expected} is missing or out of order (found {int(seq)})",
                )
            expected = int(seq) + 1
            if session.mono and mono < session.mono[-1] - ORDER_SLACK:
                report("time-backwards", f"{name}: {event} was recorded before the previous line")
            if event == "steps":
                _add_steps(session, line, name, report)
            else:
                if event == "quality":
                    finite(line.get("epoch") or 0)
                session.marks.append(Mark(event, mono, wall, line))
            session.mono.append(mono)
            session.wall.append(wall)
            if event == "end":
                session.closed = True
                _compare_totals(session, line, name, report)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            report("meter-record", f"{name}: a record is malformed: {error!r:.200}")
    for found in sessions:
        _check_columns(found, name, report)
    return [found for found in sessions if found.mono]


def _begin(line: dict[str, Any]) -> MeterSession:
    pid = line.get("pid")
    return MeterSession(
        int(line["rank"]),
        int(line["world"]),
        str(line.get("host", ""))[:255],
        pid if isinstance(pid, int) else 0,
    )


def _add_steps(session: MeterSession, line: dict[str, Any], name: str, report: Report) -> None:
    counts, samples, at = line["counts"], line["samples"], line["at"]
    before = len(session.at)
    if not len(counts) == len(samples) == len(at) > 0:
        raise ValueError("counts, samples and times are not equally many")
    try:
        try:
            session.counts.extend(counts)
            session.samples.extend(samples)
            session.at.extend(at)
        except TypeError:  # numbers of other libraries are written as texts
            _cut(session, before)
            session.counts.extend([int(finite(x)) for x in counts])
            session.samples.extend([float(x) for x in samples])
            session.at.extend([float(x) for x in at])
        first, number = int(line["first"]), sum(session.counts[before:])
    except (KeyError, TypeError, ValueError, OverflowError):
        _cut(session, before)
        raise
    if first != session.step_count:
        report("steps-lost", f"{name}: steps {session.step_count}…{first - 1} are missing")
    session.step_count += number


def _cut(session: MeterSession, length: int) -> None:
    """Take back what a malformed line added."""
    for column in (session.counts, session.samples, session.at):
        del column[length:]


def _check_columns(session: MeterSession, name: str, report: Report) -> None:
    """Checks over all steps at once."""
    if not session.at:
        return
    numbers = math.isfinite(sum(session.samples)) and math.isfinite(sum(session.at))
    if not numbers or min(session.counts) < 1 or min(session.samples) < 0:
        report("meter-record", f"{name}: steps or samples are not positive numbers, or times are not finite")
        _cut(session, 0)
        session.step_count = 0
    elif any(map(lt, islice(session.at, 1, None), session.at)):
        report("time-backwards", f"{name}: a step ended before the previous step")


def _compare_totals(session: MeterSession, line: dict[str, Any], name: str, report: Report) -> None:
    samples = math.fsum(session.samples)
    same = math.isclose(finite(line["samples"]), samples, rel_tol=1e-9)
    if int(line["steps"]) != session.step_count or not same:
        report(
            "meter-totals",
            f"{name}: the closing line counts {line['steps']} steps and {line['samples']} samples, "
            f"the file holds {session.step_count} and {samples:g}",
        )
    if line.get("dropped"):
        report("meter-lines-lost", f"{name}: {line['dropped']!s:.20} lines could not be written")
