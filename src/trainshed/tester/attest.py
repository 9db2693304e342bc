"""Rules of a Tester about chains: the heads that came during a run compared with the submitted chain.

Pure: what came is in `Witnessed`, what was submitted is in `SubmittedRun`. Whether
the chain fits the files beside it is found by `bench.judge.cross.chain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainshed.tester.headbook import Witnessed

GAP, GAP_SHARE = 120.0, 0.1
"""A network that was away for so many seconds, or for this part of the run, is not held against the run."""
LATE, LATE_SHARE = 60.0, 0.01
"""How much later one head may arrive than another, and how far clocks may drift apart, as a part of the run."""


@dataclass(frozen=True)
class SubmittedRun:
    """The chain of one run of a result."""

    run: int
    nonce: str
    records: tuple[tuple[str, float], ...] = ()
    """(hash, time) of each record."""
    submitted: float | None = None
    finished: float | None = None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> SubmittedRun:
        records = tuple((str(digest), float(at)) for digest, at in answer["records"])
        return cls(answer["run"], answer["nonce"], records, answer["submitted"], answer["finished"])

    @property
    def span(self) -> float:
        return self.records[-1][1] - self.records[0][1] if self.records else 0.0


@dataclass(frozen=True)
class WatchedRun:
    """One run: what was submitted, and what came during it."""

    chain: SubmittedRun
    seen: Witnessed
    upload: str

    @property
    def delays(self) -> list[float]:
        """How much later than it was made each head came, by two clocks that may differ."""
        records = self.chain.records
        return [head.received - records[head.seq][1] for head in self.seen.heads if head.seq < len(records)]


Found = tuple[str, str]


def attest(
    chains: Sequence[SubmittedRun], find: Callable[[str], Witnessed | None], upload: str, is_required: bool
) -> Iterator[Found]:
    """(code, sentence) of what does not hold."""
    twice = {nonce for nonce, count in Counter(c.nonce for c in chains if c.nonce).items() if count > 1}
    for nonce in sorted(twice):
        yield "nonce-reused", f"several runs of this result have nonce {nonce}"
    for chain in chains:
        name = f"run {chain.run}"
        if not chain.nonce:
            if is_required:
                yield "not-attested", f"{name} was not witnessed by this Tester: it has no nonce"
            continue
        seen = find(chain.nonce)
        if seen is None:
            yield "nonce-unknown", f"{name} has nonce {chain.nonce}, which was not given out for this test"
            continue
        case = WatchedRun(chain, seen, upload)
        for code, rule in RULES.items():
            for text in rule(case):
                yield code, f"{name}: {text}"


def _reused(case: WatchedRun) -> Iterator[str]:
    """A nonce is of one run: no other result of the test has another run with it."""
    last = case.chain.records[-1][0] if case.chain.records else ""
    if any(upload != case.upload and digest != last for upload, digest in case.seen.uses):
        yield f"nonce {case.chain.nonce} was used by another run submitted before"


def _missing(case: WatchedRun) -> Iterator[str]:
    """Heads came during the run."""
    if not case.seen.heads:
        yield "no head of its chain came while it was made"


def is_as_seen(chain: SubmittedRun, seen: Witnessed) -> bool:
    """Whether this is the chain whose heads came."""
    return not list(_differs(WatchedRun(chain, seen, "")))


def _differs(case: WatchedRun) -> Iterator[str]:
    """Every head that came is that of a record of the chain."""
    records = case.chain.records
    for head in case.seen.heads:
        if head.seq >= len(records):
            yield f"{head.seq + 1} records or more were seen, the chain has {len(records)}"
            return
        if records[head.seq][0] != head.digest:
            yield f"record {head.seq} of its chain is not the one that was seen during the run"
            return


def _gap(case: WatchedRun) -> Iterator[str]:
    """Heads came from the beginning to the end, without a long pause."""
    records = case.chain.records
    known = [records[head.seq][1] for head in case.seen.heads if head.seq < len(records)]
    if not known:
        return
    allowed = GAP + GAP_SHARE * case.chain.span
    longest = max(after - before for before, after in pairwise([records[0][1], *known, records[-1][1]]))
    if longest > allowed:
        yield f"no head came for {longest:.0f} s of the run, {allowed:.0f} s are allowed"


def _time(case: WatchedRun) -> Iterator[str]:
    """The run's clock and the Tester's went alike, and the run lies between its nonce and its last head."""
    chain, seen, delays = case.chain, case.seen, case.delays
    if not delays:
        return
    allowed = LATE + LATE_SHARE * chain.span
    if max(delays) - min(delays) > allowed:
        yield f"its clock and the Tester's drifted apart by {max(delays) - min(delays):.0f} s during the run"
    # The least delay is the difference of both clocks, and what a message takes.
    if chain.submitted is not None and chain.submitted + min(delays) < seen.issued - allowed:
        yield f"it was submitted {seen.issued - chain.submitted - min(delays):.0f} s before its nonce was given out"
    if chain.finished is not None and chain.finished > chain.records[-1][1] + allowed:
        yield f"it ended {chain.finished - chain.records[-1][1]:.0f} s after the last record of its chain"


RULES: dict[str, Callable[[WatchedRun], Iterator[str]]] = {
    "nonce-reused": _reused,
    "heads-missing": _missing,
    "head-differs": _differs,
    "head-gap": _gap,
    "head-time": _time,
}
CODES = {"not-attested", "nonce-unknown", *RULES}
