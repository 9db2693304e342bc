"""Cross-checks: every kind of evidence of a run held against every other, one named rule each.

A rule finds contradictions, not absences: what a run must have left is asked by
`check`. Each rule has its own code, which stands in docs/judging.md with
what it compares. Rules read data only and pass once over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.evidence import RankEvidence, RunEvidence
from trainshed.bench.measure.meter_file import MeterSession
from trainshed.bench.result import Reason

MOST_MESSAGES = 3
"""Of one rule and one run: the same lie may show in every step."""
SAME_MACHINE = 0.5
"""Seconds by which two processes of one machine may note one moment differently on a busy machine."""
OTHER_MACHINE = 5.0
"""Seconds by which the wall clocks of two machines may differ."""
START_DELAY = 5.0
"""Seconds after which an agent on a busy machine may note that it started a process."""


@dataclass(frozen=True)
class Case:
    """One run before the rules."""

    evidence: RunEvidence
    rules: Rules
    metered: dict[int, RankEvidence]
    found: dict[str, list[str]] = field(default_factory=dict)
    """What one pass over large files found for several rules, by their codes."""

    @property
    def sessions(self) -> Iterator[tuple[RankEvidence, MeterSession]]:
        """The last session of each rank that has a meter."""
        for rank in self.metered.values():
            if rank.session is not None:
                yield rank, rank.session


@dataclass(frozen=True)
class Rule:
    code: str
    find: Callable[[Case], Iterator[str]]

    @property
    def text(self) -> str:
        return (self.find.__doc__ or "").strip()


RULES: list[Rule] = []


def rule(code: str) -> Callable[[Callable[[Case], Iterator[str]]], Callable[[Case], Iterator[str]]]:
    """Enter a function into the list of rules; its docstring says what must hold."""

    def enter(find: Callable[[Case], Iterator[str]]) -> Callable[[Case], Iterator[str]]:
        RULES.append(Rule(code, find))
        return find

    return enter


def examine(evidence: RunEvidence, rules: Rules) -> list[Reason]:
    """What the rules find in one run."""
    from trainshed.bench.judge.cross import agreement, alike, chain, evaluations, happened, machines, steps

    entered = (agreement, alike, chain, evaluations, happened, machines, steps)
    assert all(entered), "they enter their rules"
    case = Case(evidence, rules, evidence.metered)
    return [
        Reason(code=each.code, message=message)
        for each in RULES
        for message in islice(each.find(case), MOST_MESSAGES)
    ]
