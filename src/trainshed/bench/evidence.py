"""Reads a run directory into plain data for measuring.

The one place that knows the names of files in a run directory. It judges
nothing: what is unreadable becomes a `Defect` that measuring turns into a
reason. Layout: `job.yaml`, `plan.json`, `events.jsonl`, `node-<i>/events.jsonl`,
`node-<i>/rank-<r>.log`, `node-<i>/metrics.jsonl`, `node-<i>/power.jsonl`, `node-<i>/meter-rank-<r>.jsonl`,
and result files of ais-bench anywhere below `outputs/` or `node-<i>/`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NODE_FOLDER = re.compile(r"node-(\d+)$")
METER_FILE = re.compile(r"meter-rank-(\d+)\.jsonl$")
RANK_LOG = re.compile(r"rank-(\d+)\.log$")


@dataclass(frozen=True)
class Defect:
    """Something in the evidence that cannot be read as it should."""

    code: str
    path: str
    message: str


@dataclass(frozen=True)
class Mark:
    event: str
    mono: float
    wall: float
    fields: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """`count` steps that ended at `mono`, with `samples` samples."""

    count: int
    samples: float
    mono: float


@dataclass
class MeterSession:
    """What one process of a rank recorded, from its first line to its last."""

    rank: int
    world: int
    host: str
    marks: list[Mark] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    clocks: list[tuple[float, float]] = field(default_factory=list)
    closed: bool = False

    def first(self, event: str) -> Mark | None:
        return next((m for m in self.marks if m.event == event), None)

    def all(self, event: str) -> list[Mark]:
        return [m for m in self.marks if m.event == event]

    @property
    def step_count(self) -> int:
        return sum(s.count for s in self.steps)

    def wall_of(self, mono: float) -> float:
        """The wall time of a monotonic time, by the nearest line that carries both clocks."""
        near = min(self.clocks, key=lambda c: abs(c[0] - mono))
        return near[1] + (mono - near[0])


@dataclass
class RankEvidence:
    rank: int
    node: int
    sessions: list[MeterSession] = field(default_factory=list)
    log: Path | None = None

    @property
    def session(self) -> MeterSession | None:
        """The last process of this rank: earlier ones were lost and started again."""
        return self.sessions[-1] if self.sessions else None


@dataclass(frozen=True)
class DeviceSample:
    kind: str
    index: int
    util_percent: float | None
    memory_bytes: float | None
    power_watts: float | None


@dataclass(frozen=True)
class NodeSample:
    t: float
    cpu_percent: float | None
    memory_bytes: float | None
    devices: tuple[DeviceSample, ...]


@dataclass
class RunEvidence:
    """Everything a run left behind."""

    root: Path
    ranks: dict[int, RankEvidence] = field(default_factory=dict)
    metrics: dict[int, list[NodeSample]] = field(default_factory=dict)
    watts: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """(time, watts) of a whole node, where RAPL or a BMC was read."""
    watts_source: dict[int, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    phases: list[tuple[int, str, float, float]] = field(default_factory=list)
    """(node, name, start, end) of the agents' own phases, wall time."""
    plan_run: str = ""
    expected_ranks: int | None = None
    devices_not_measured: str = ""
    defects: list[Defect] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return self.plan_run or self.root.name


def read_run(root: Path) -> RunEvidence:
    """Read every file of a run directory that measuring needs."""
    evidence = RunEvidence(root)
    if not root.is_dir():
        evidence.defects.append(Defect("run-missing", str(root), f"there is no run directory {root}"))
        return evidence
    _read_events(evidence)
    _read_plan(evidence)
    for folder in sorted(root.iterdir()):
        match = NODE_FOLDER.match(folder.name)
        if match and folder.is_dir():
            _read_node(evidence, int(match.group(1)), folder)
    return evidence


def read_state(root: Path) -> str:
    """The state in which the run of a directory finished, see `final_state`."""
    evidence = RunEvidence(root)
    _read_events(evidence)
    return final_state(evidence)


def final_state(evidence: RunEvidence) -> str:
    """The state in which the run finished, "unfinished" when it has no end, "" when nothing tells."""
    if not evidence.events:
        return ""
    ends = [e for e in evidence.events if e.get("kind") == "finished"]
    return str(ends[-1].get("state", "")).lower() if ends else "unfinished"


def read_meter(path: Path, evidence: RunEvidence) -> list[MeterSession]:
    """The sessions of one meter file; broken, lost or reordered lines become defects."""
    sessions: list[MeterSession] = []
    expected_seq = 0
    name = _relative(path, evidence)
    lines = _json_lines(path, evidence)
    for line in lines:
        try:
            event, mono, wall = str(line["event"]), _finite(line["mono"]), _finite(line["wall"])
            seq = int(line["seq"])
            if event == "meter":
                expected_seq = 0
                sessions.append(
                    MeterSession(int(line["rank"]), int(line["world"]), str(line.get("host", "")))
                )
            if not sessions:
                evidence.defects.append(
                    Defect("meter-header", name, f"{name} does not begin with a meter line")
                )
                return sessions
            session = sessions[-1]
            if seq != expected_seq:
                lost = f"{name}: line {expected_seq} is missing or out of order (found {seq})"
                evidence.defects.append(Defect("meter-lines-lost", name, lost))
            expected_seq = seq + 1
            session.clocks.append((mono, wall))
            if event == "steps":
                _add_steps(session, line, name, evidence)
            else:
                if event == "quality":
                    _finite(line.get("epoch") or 0)
                session.marks.append(Mark(event, mono, wall, line))
            if event == "end":
                session.closed = True
                _compare_totals(session, line, name, evidence)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            evidence.defects.append(Defect("meter-record", name, f"{name}: a record is malformed: {error!r}"))
    if not lines:
        evidence.defects.append(Defect("meter-empty", name, f"{name} holds no record"))
    return sessions


def _add_steps(session: MeterSession, line: dict[str, Any], name: str, evidence: RunEvidence) -> None:
    if int(line["first"]) != session.step_count:
        text = f"{name}: steps {session.step_count}…{int(line['first']) - 1} are missing"
        evidence.defects.append(Defect("steps-lost", name, text))
    last = session.steps[-1].mono if session.steps else float("-inf")
    found = [_step(*each) for each in zip(line["counts"], line["samples"], line["at"], strict=True)]
    for step in found:
        if step.mono < last:
            text = f"{name}: a step ended before the step in front of it"
            evidence.defects.append(Defect("time-backwards", name, text))
        last = step.mono
    session.steps += found


def _step(count: object, samples: object, at: object) -> Step:
    step = Step(int(_finite(count)), _finite(samples), _finite(at))
    if step.count < 1 or step.samples < 0:
        raise ValueError(f"{step.count} steps with {step.samples:g} samples")
    return step


def _compare_totals(session: MeterSession, line: dict[str, Any], name: str, evidence: RunEvidence) -> None:
    samples = sum(s.samples for s in session.steps)
    same = math.isclose(_finite(line["samples"]), samples, rel_tol=1e-9)
    if int(line["steps"]) != session.step_count or not same:
        text = (
            f"{name}: the closing line counts {line['steps']} steps and {line['samples']} samples, "
            f"the file holds {session.step_count} and {samples:g}"
        )
        evidence.defects.append(Defect("meter-totals", name, text))


def _read_events(evidence: RunEvidence) -> None:
    path = evidence.root / "events.jsonl"
    evidence.events = _json_lines(path, evidence) if path.exists() else []


def _read_plan(evidence: RunEvidence) -> None:
    path = evidence.root / "plan.json"
    if not path.exists():
        return
    try:
        plan = json.loads(path.read_text("utf-8"))
        evidence.plan_run = str(plan["run"])
        evidence.expected_ranks = int(plan["size"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        name = _relative(path, evidence)
        evidence.defects.append(Defect("plan-unreadable", name, f"{name} cannot be read: {error!r}"))


def _read_node(evidence: RunEvidence, index: int, folder: Path) -> None:
    evidence.nodes.append(index)
    for path in sorted(folder.rglob("*")):
        if meter := METER_FILE.search(path.name):
            rank = _rank(evidence, int(meter.group(1)), index)
            rank.sessions.extend(read_meter(path, evidence))
        elif (log := RANK_LOG.search(path.name)) and path.parent == folder:
            _rank(evidence, int(log.group(1)), index).log = path
    if (folder / "events.jsonl").exists():
        for event in _json_lines(folder / "events.jsonl", evidence):
            end, seconds = _float(event.get("time")), _float(event.get("seconds"))
            if event.get("kind") == "phase" and end is not None and seconds is not None:
                evidence.phases.append((index, str(event.get("phase")), end - seconds, end))
    if (folder / "power.jsonl").exists():
        for line in _json_lines(folder / "power.jsonl", evidence):
            t, watts = _float(line.get("t")), _float(line.get("watts"))
            if t is not None and watts is not None:
                evidence.watts.setdefault(index, []).append((t, watts))
                evidence.watts_source[index] = str(line.get("source", ""))
    if (folder / "metrics.jsonl").exists():
        lines = _json_lines(folder / "metrics.jsonl", evidence)
        evidence.metrics[index] = [s for x in lines if (s := _node_sample(x)) is not None]
        for line in lines:
            evidence.devices_not_measured = str(
                line.get("devices_not_measured") or evidence.devices_not_measured
            )


def _rank(evidence: RunEvidence, rank: int, node: int) -> RankEvidence:
    found = evidence.ranks.setdefault(rank, RankEvidence(rank, node))
    if found.node != node:
        text = f"rank {rank} left files on node {found.node} and on node {node}"
        evidence.defects.append(Defect("rank-twice", f"node-{node}", text))
    return found


def _node_sample(line: dict[str, Any]) -> NodeSample | None:
    t, listed = _float(line.get("t")), line.get("devices")
    if t is None or not isinstance(listed, list):
        return None
    devices = tuple(
        DeviceSample(
            str(d.get("kind", "device")),
            int(_float(d.get("index")) or 0),
            _float(d.get("util_percent")),
            _float(d.get("memory_bytes")),
            _float(d.get("power_watts")),
        )
        for d in listed
        if isinstance(d, dict)
    )
    return NodeSample(t, _float(line.get("cpu_percent")), _float(line.get("memory_bytes")), devices)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not finite")
    return number


def _float(value: object) -> float | None:
    """A reading; None where there is none that can be calculated with."""
    try:
        return _finite(value) if isinstance(value, int | float) else None
    except (ValueError, OverflowError):
        return None


def _json_lines(path: Path, evidence: RunEvidence) -> list[dict[str, Any]]:
    name = _relative(path, evidence)
    found: list[dict[str, Any]] = []
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        evidence.defects.append(Defect("unreadable", name, f"{name} cannot be read: {error}"))
        return found
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            evidence.defects.append(Defect("truncated", name, f"{name} line {number} is not whole JSON"))
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _relative(path: Path, evidence: RunEvidence) -> str:
    try:
        return str(path.relative_to(evidence.root))
    except ValueError:
        return str(path)
