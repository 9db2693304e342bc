"""The files that every run must have left: without them nothing proves that it took place.

Contradictions between files are found by `cross`; here only absence counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainshed.bench.judge.cross.machines import MIN_SECONDS
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.evidence import RunEvidence, node_of
from trainshed.runs.events import END, PhaseFinished

OF_RUN = ("plan.json", "job.yaml", "events/submit.jsonl", f"events/{END}.jsonl", "events/coordinator-1.jsonl")


def missing_files(evidence: RunEvidence, rules: Rules) -> Iterator[str]:
    """What a run lacks, by name below its folder."""
    for name in OF_RUN:
        if not (evidence.root / name).is_file():
            yield name
    for node in range(rules.nodes):
        if not (evidence.root / f"events/node-{node}-1.jsonl").is_file():
            yield f"events/node-{node}-1.jsonl"
    for process in evidence.plan.processes if evidence.plan else ():
        name = f"node-{process.node}/{process.name}.log"
        if "/" in process.name or not (evidence.root / name).is_file():
            yield name
    for event, body in evidence.bodies(PhaseFinished):
        writer = node_of(event)
        long = body.phase == "run" and body.seconds >= MIN_SECONDS
        # Shorter than that, the first sample may never have been taken.
        if long and writer is not None and not evidence.metrics.get(writer):
            yield f"node-{writer}/metrics.jsonl"
