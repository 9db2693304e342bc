"""Rules about the chain of a run: is the evidence what it was while it was made?

A chain that is kept on the participant's machine only shows that nobody changed
a part of the evidence; whether it was made when it says so is known to a Tester
that was sent its heads meanwhile (`trainshed.tester.attest`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from trainshed.bench.judge.cross import OTHER_MACHINE, SAME_MACHINE, Case, rule
from trainshed.bench.measure import reading
from trainshed.bench.measure.evidence import RunEvidence, final_state
from trainshed.runs.chain import NONCE_LABEL, Chain, Head, Record, is_nonce, pause, prefixes
from trainshed.runs.events import AttemptFinished, Finished, RanksStarted, Submitted

WHOLE = re.compile(
    r"(events/(coordinator-1|node-\d{1,6}-1)\.jsonl|node-\d{1,6}/(metrics|meter-rank-\d{1,9})\.jsonl)\Z"
)
"""Files that must be in the chain to their last line. Of others (logs, power, driver) it holds what it noted."""
LATE = 60.0
"""Seconds after which a line that was written may be noted on a busy machine, beside the usual pause."""
STALLED = 120.0
"""Seconds without a record, beside the usual pause, that a busy machine explains."""
_TIMES = {
    "events": re.compile(rb'"time":\s*([0-9]+(?:\.[0-9]+)?)'),
    "metrics.jsonl": re.compile(rb'"t":\s*([0-9]+(?:\.[0-9]+)?)'),
    "meter": re.compile(rb'"wall":\s*([0-9]+(?:\.[0-9]+)?)'),
}


Noted = list[tuple[Record, Record, Head]]
"""Of a file: the record that noted it, the record before that, and the head."""


@dataclass(frozen=True)
class ChainFacts:
    """What is remembered of a run's chain: of each record its hash and its time."""

    nonce: str
    records: tuple[tuple[str, float], ...]
    submitted: float | None
    finished: float | None


def chain_facts(evidence: RunEvidence) -> ChainFacts | None:
    chain = evidence.chain
    if chain is None:
        return None
    submitted, ended = evidence.bodies(Submitted), evidence.bodies(Finished)
    return ChainFacts(
        chain.nonce if is_nonce(chain.nonce) else "",
        tuple((record.digest, record.time) for record in chain.records),
        submitted[0][0].time if submitted else None,
        ended[-1][0].time if ended else None,
    )


@rule("chain-missing")
def present(case: Case) -> Iterator[str]:
    """A run that was begun with a Tester's nonce has a chain."""
    if case.evidence.chain is None and not case.evidence.chain_problem and _promised(case):
        yield "the run was begun with a Tester's nonce and has no chain"


@rule("chain-broken")
def unbroken(case: Case) -> Iterator[str]:
    """Every record of the chain follows the one before it, and one process signed them all."""
    if case.evidence.chain_problem:
        yield f"the chain is broken: {case.evidence.chain_problem:.200}"


@rule("chain-unfinished")
def closed(case: Case) -> Iterator[str]:
    """The chain of a run that succeeded was closed."""
    chain = case.evidence.chain
    if chain is not None and not chain.is_closed and final_state(case.evidence) == "succeeded":
        yield f"the run succeeded, its chain ends at record {len(chain.records) - 1} without being closed"


@rule("chain-foreign")
def of_this_run(case: Case) -> Iterator[str]:
    """The chain is of this run, and has the nonce that the run was begun with."""
    chain, plan = case.evidence.chain, case.evidence.plan
    if chain is None:
        return
    if plan is not None and plan.run and chain.run != plan.run:
        yield f"the chain is of run {chain.run:.80}, the plan of {plan.run:.80}"
    promised = _promised(case)
    if chain.nonce != promised:
        yield f"the chain has nonce {(chain.nonce or 'none')[:40]}, the run was begun with {(promised or 'none')[:40]}"


@rule("chain-differs")
def files_as_noted(case: Case) -> Iterator[str]:
    """Every file begins with what the chain noted of it, at each moment that it did."""
    yield from _in_files(case)["chain-differs"]


@rule("chain-uncovered")
def all_noted(case: Case) -> Iterator[str]:
    """Events, samples and meters of a closed chain are in it to their last line."""
    yield from _in_files(case)["chain-uncovered"]


@rule("chain-content")
def noted_in_time(case: Case) -> Iterator[str]:
    """Each line of events, samples and meters was noted soon after the time that it states, and not before."""
    yield from _in_files(case)["chain-content"]


@rule("chain-time")
def in_time(case: Case) -> Iterator[str]:
    """Records follow one another without a long pause, from before the ranks started to the end of the run."""
    chain, evidence = case.evidence.chain, case.evidence
    if chain is None:
        return
    first, last = chain.records[0].time, chain.records[-1].time
    for before, after in pairwise(chain.records):
        apart, size = after.time - before.time, 200 + 120 * len(before.heads)
        if apart < -SAME_MACHINE:
            yield f"record {after.seq} of the chain is {-apart:.1f} s earlier than the one before it"
        elif apart > STALLED + 2 * pause(size, before.time - first):
            yield f"nothing was noted for {apart:.0f} s after record {before.seq} of the chain"
    bounds = (
        *((e.time, "submitted", True, first) for e, _ in evidence.bodies(Submitted)[:1]),
        *((e.time, "started its ranks", False, first) for e, _ in evidence.bodies(RanksStarted)[:1]),
        *((e.time, "finished", False, last) for e, _ in evidence.bodies(Finished)[-1:]),
    )
    for moment, what, comes_first, record in bounds:
        early, late = (moment, record) if comes_first else (record, moment)
        if early > late + OTHER_MACHINE:
            side = "before" if comes_first else "after"
            yield f"the chain has a record {abs(record - moment):.1f} s {side} the run {what}"
    for event, _ in evidence.bodies(AttemptFinished)[:1]:
        if chain.is_closed and last < event.time - OTHER_MACHINE:
            yield f"the chain was closed {event.time - last:.1f} s before the attempt finished"


def _in_files(case: Case) -> dict[str, list[str]]:
    """What is wrong with the files that the chain covers, each of them read once for all rules."""
    if not case.found:
        case.found.update({"chain-differs": [], "chain-uncovered": [], "chain-content": []})
        noted = _noted(case.evidence.chain)
        for name in sorted({*noted, *_whole_files(case)}) if case.evidence.chain else ():
            data = _content(case, name)
            case.found["chain-differs"] += _differs(name, data, noted.get(name, []))
            case.found["chain-uncovered"] += _uncovered(case, name, data or b"", noted.get(name, []))
            case.found["chain-content"] += _untimely(case, name, data or b"", noted.get(name, []))
    return case.found


def _differs(name: str, data: bytes | None, noted: Noted) -> Iterator[str]:
    heads = [head for _, _, head in noted]
    if not heads:
        return
    if data is None:
        yield f"{name} is in the chain and not in the result"
    elif any(after.length < before.length for before, after in pairwise(heads)):
        yield f"{name} became shorter while it was made"
    elif heads[-1].length > len(data):
        yield f"{name} has {len(data)} bytes, it had {heads[-1].length} when the run ended"
    else:
        found = prefixes(data, [head.length for head in heads])
        for (length, sha256), head in zip(found, heads, strict=True):
            if sha256 != head.sha256:
                yield f"the first {length} bytes of {name} are not those that were there during the run"
                return


def _uncovered(case: Case, name: str, data: bytes, noted: Noted) -> Iterator[str]:
    chain = case.evidence.chain
    if chain is None or not chain.is_closed or not WHOLE.match(name):
        return
    length = noted[-1][2].length if noted else 0
    # A last sample may be written while the agent already takes leave.
    allowed = 1 if name.endswith("/metrics.jsonl") else 0
    if not noted and data:
        yield f"{name} is not in the chain"
    elif data[length:].count(b"\n") > allowed:
        yield f"{name} grew by {len(data) - length} bytes after the run had ended"


def _untimely(case: Case, name: str, data: bytes, noted: Noted) -> Iterator[str]:
    if not WHOLE.match(name) or case.evidence.chain is None:
        return
    pattern = next(found for key, found in _TIMES.items() if name.startswith(key) or f"/{key}" in name)
    start = at = 0
    while end := data.find(b"\n", start) + 1:
        while at < len(noted) and noted[at][2].length < end:
            at += 1
        if at == len(noted):
            return
        seen, before = noted[at][0].time, noted[at][1].time
        if match := pattern.search(data, start, end):
            stated = float(match[1])
            if stated > seen + OTHER_MACHINE:
                yield f"{name} states times {stated - seen:.1f} s later than the chain noted them"
                return
            if stated < before - LATE - (seen - before):
                yield f"{name}: a line of {seen - stated:.0f} s before was not there {seen - before:.0f} s before"
                return
        start = end


def _promised(case: Case) -> str:
    """The nonce that the run was submitted with."""
    return next((body.labels.get(NONCE_LABEL, "") for _, body in case.evidence.bodies(Submitted)), "")


def _noted(chain: Chain | None) -> dict[str, Noted]:
    found: dict[str, Noted] = {}
    for before, record in pairwise(chain.records if chain else ()):
        for name, head in record.heads.items():
            found.setdefault(name, []).append((record, before, head))
    return found


def _content(case: Case, name: str) -> bytes | None:
    try:
        return reading.read_bytes(case.evidence.root / name)
    except ValueError:
        return None


def _whole_files(case: Case) -> Iterator[str]:
    root = case.evidence.root
    for path in (*root.glob("events/*.jsonl"), *root.glob("node-*/*.jsonl")):
        name = path.relative_to(root).as_posix()
        if WHOLE.match(name):
            yield name
