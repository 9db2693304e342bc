"""Reads a run directory into plain data for measuring, each file once.

Measuring knows the files of a run directory from here alone; `runs/` writes them. It judges
nothing: what is unreadable becomes a `Defect` that measuring turns into a
reason. Layout: `job.yaml`, `plan.json`, `events/<writer>.jsonl`,
`node-<i>/rank-<r>.log`, `node-<i>/metrics.jsonl`, `node-<i>/power.jsonl`,
`node-<i>/meter-rank-<r>.jsonl`, `node-0/chain-1.jsonl`, and result files of ais-bench anywhere below
`outputs/` or `node-<i>/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from trainshed.bench.measure import reading
from trainshed.bench.measure.meter_file import MeterSession, read_sessions
from trainshed.errors import TrainshedError
from trainshed.runs import chain, events
from trainshed.runs.chain import Chain, ChainError
from trainshed.runs.events import Event, Finished, PhaseFinished, Submitted, UnreadableRunError
from trainshed.spec.load import load_fields

NODE_FOLDER = re.compile(r"node-([0-9]{1,6})\Z")
METER_FILE = re.compile(r"meter-rank-([0-9]{1,9})\.jsonl\Z")
RANK_LOG = re.compile(r"rank-([0-9]{1,9})\.log\Z")
NODE_WRITER = re.compile(r"node-([0-9]{1,6})-[0-9]{1,6}\Z")
MAX_DEFECTS = 200
"""Of one run: a broken file may break in every line."""

B = TypeVar("B")


@dataclass(frozen=True)
class Defect:
    """Something in the evidence that cannot be read as it should."""

    code: str
    path: str
    message: str


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


@dataclass(frozen=True, slots=True)
class DeviceSample:
    kind: str
    index: int
    util_percent: float | None
    memory_bytes: float | None
    power_watts: float | None


@dataclass(frozen=True, slots=True)
class NodeSample:
    t: float
    cpu_percent: float | None
    memory_bytes: float | None
    devices: tuple[DeviceSample, ...]
    node_cpu_percent: float | None = None
    net_sent_bytes: float | None = None
    net_received_bytes: float | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None


@dataclass(frozen=True)
class PlannedProcess:
    name: str
    node: int
    rank: int | None
    argv: tuple[str, ...]


@dataclass(frozen=True)
class PlanFacts:
    """What the plan says of a run, as far as anything else says it too."""

    run: str
    size: int
    nodes: int
    launcher: str
    contract: str
    kind: str
    emulated: bool
    isolated: bool
    run_variable: str
    processes: tuple[PlannedProcess, ...]
    names: dict[int, str] = field(default_factory=dict)
    """The host name of each node."""


@dataclass
class RunEvidence:
    """Everything a run left behind."""

    root: Path
    ranks: dict[int, RankEvidence] = field(default_factory=dict)
    metrics: dict[int, list[NodeSample]] = field(default_factory=dict)
    watts: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """(time, watts) of a whole node, where RAPL or a BMC was read."""
    watts_source: dict[int, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    """Of all writers, by time; the end is last."""
    writers: dict[str, list[Event]] = field(default_factory=dict)
    """The events of each writer as they stand in its file."""
    nodes: list[int] = field(default_factory=list)
    plan: PlanFacts | None = None
    job: dict[str, Any] | None = None
    """The fields of job.yaml."""
    devices_not_measured: str = ""
    chain: Chain | None = None
    chain_problem: str = ""
    """Why the chain cannot be believed; then there is none."""
    defects: list[Defect] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return self.plan.run if self.plan and self.plan.run else self.root.name

    @property
    def metered(self) -> dict[int, RankEvidence]:
        return {r: e for r, e in sorted(self.ranks.items()) if e.session is not None}

    @property
    def phases(self) -> list[tuple[int, str, float, float]]:
        """(node, name, start, end) of the agents' own phases, wall time."""
        found = [(node_of(event), event, event.body) for event in self.events]
        return [
            (node, body.phase, event.time - body.seconds, event.time)
            for node, event, body in found
            if isinstance(body, PhaseFinished) and node is not None
        ]

    def bodies(self, kind: type[B]) -> list[tuple[Event, B]]:
        """The events of one kind, in the order of time."""
        return [(event, event.body) for event in self.events if isinstance(event.body, kind)]

    def add_defect(self, code: str, name: str, message: str) -> None:
        if len(self.defects) < MAX_DEFECTS:
            self.defects.append(Defect(code, name, message))


def node_of(event: Event) -> int | None:
    """The node whose agent wrote an event."""
    match = NODE_WRITER.match(event.writer)
    return int(match.group(1)) if match else None


def read_run(root: Path) -> RunEvidence:
    """Read every file of a run directory that measuring needs."""
    evidence = RunEvidence(root)
    if not root.is_dir():
        evidence.add_defect("run-missing", str(root), f"there is no run directory {root}")
        return evidence
    _read_events(evidence)
    _read_plan(evidence)
    _read_job(evidence)
    _read_chain(evidence)
    for folder in sorted(root.iterdir()):
        match = NODE_FOLDER.match(folder.name)
        if match and folder.is_dir():
            _read_node(evidence, int(match.group(1)), folder)
    return evidence


def final_state(evidence: RunEvidence) -> str:
    """The state in which the run finished, "unfinished" when it has no end, "" when it is unknown."""
    if not evidence.events:
        return ""
    ends = evidence.bodies(Finished)
    return ends[-1][1].outcome.state.value if ends else "unfinished"


def is_emulated(evidence: RunEvidence) -> bool:
    """Whether stand-ins took the place of devices, by the plan or by what was submitted."""
    submitted = any(body.emulated for _, body in evidence.bodies(Submitted))
    return submitted or (evidence.plan is not None and evidence.plan.emulated)


def read_meter(path: Path, evidence: RunEvidence) -> list[MeterSession]:
    """The sessions of one meter file; what is wrong with it becomes defects."""
    name = _relative(path, evidence)
    lines = list(_lines(path, evidence))
    if not lines:
        evidence.add_defect("meter-empty", name, f"{name} holds no record")
    return read_sessions(lines, name, lambda code, message: evidence.add_defect(code, name, message))


def _read_events(evidence: RunEvidence) -> None:
    folder = evidence.root / "events"
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        name, found = _relative(path, evidence), evidence.writers.setdefault(path.stem, [])
        try:
            data = reading.read_bytes(path)
            for number, line in enumerate(data.split(b"\n"), 1):
                if not line.strip():
                    continue
                event = events.from_line(line, path.stem)
                if event is None:
                    evidence.add_defect("truncated", name, f"{name} line {number} is not complete JSON")
                else:
                    reading.finite(event.time)
                    found.append(event)
        except UnreadableRunError as error:
            evidence.add_defect("events-unreadable", name, error.message)
        except (ValueError, OverflowError) as error:
            evidence.add_defect("events-unreadable", name, f"{name} cannot be read: {error}")
    merged = [event for found in evidence.writers.values() for event in found]
    evidence.events = sorted(merged, key=lambda e: (isinstance(e.body, Finished), e.time))


def _read_chain(evidence: RunEvidence) -> None:
    path = evidence.root / chain.path_of(1)
    if not path.exists():
        return
    try:
        evidence.chain = chain.read(reading.read_bytes(path))
    except (ChainError, ValueError) as error:
        evidence.chain_problem = str(error)


def _read_plan(evidence: RunEvidence) -> None:
    path = evidence.root / "plan.json"
    if not path.exists():
        return
    try:
        plan = reading.read_object(path)
        evidence.plan = PlanFacts(
            run=str(plan["run"])[:255],
            size=int(plan["size"]),
            nodes=len(plan["nodes"]),
            launcher=str(plan.get("launcher", "")),
            contract=str(plan.get("contract", "")),
            kind=str(plan.get("kind", "")),
            emulated=bool(plan.get("emulated")),
            isolated=bool(plan.get("isolated")),
            run_variable=str(plan.get("env", {}).get("TRAINSHED_RUN_ID", "")),
            processes=tuple(_processes(plan["nodes"])),
            names={int(node["index"]): str(node.get("name", ""))[:255] for node in plan["nodes"]},
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        evidence.add_defect("plan-unreadable", "plan.json", f"plan.json cannot be read: {error!r:.200}")


def _processes(nodes: list[dict[str, Any]]) -> Iterator[PlannedProcess]:
    for node in nodes:
        for process in node.get("processes", ()):
            if not process.get("helper"):
                rank, argv = process.get("rank"), tuple(str(argument) for argument in process["argv"])
                yield PlannedProcess(
                    str(process["name"]), int(node["index"]), None if rank is None else int(rank), argv
                )


def _read_job(evidence: RunEvidence) -> None:
    path = evidence.root / "job.yaml"
    if not path.exists():
        return
    try:
        reading.read_bytes(path, 1 << 20)
        evidence.job = load_fields(path)
    except (ValueError, TrainshedError) as error:
        text = error.message if isinstance(error, TrainshedError) else str(error)
        evidence.add_defect("job-unreadable", "job.yaml", f"job.yaml cannot be read: {text:.300}")


def _read_node(evidence: RunEvidence, index: int, folder: Path) -> None:
    evidence.nodes.append(index)
    for path in sorted(folder.rglob("*")):
        if meter := METER_FILE.match(path.name):
            rank = _rank(evidence, int(meter.group(1)), index)
            rank.sessions.extend(read_meter(path, evidence))
        elif (log := RANK_LOG.match(path.name)) and path.parent == folder:
            _rank(evidence, int(log.group(1)), index).log = path
    if (folder / "power.jsonl").exists():
        for _, line in _lines(folder / "power.jsonl", evidence):
            t, watts = reading.reading((line or {}).get("t")), reading.reading((line or {}).get("watts"))
            if line is not None and t is not None and watts is not None:
                evidence.watts.setdefault(index, []).append((t, watts))
                evidence.watts_source[index] = str(line.get("source", ""))
    if (folder / "metrics.jsonl").exists():
        found = evidence.metrics.setdefault(index, [])
        for _, line in _lines(folder / "metrics.jsonl", evidence):
            if line is None:
                continue
            if (sample := _node_sample(line)) is not None:
                found.append(sample)
            evidence.devices_not_measured = str(
                line.get("devices_not_measured") or evidence.devices_not_measured
            )


def _rank(evidence: RunEvidence, rank: int, node: int) -> RankEvidence:
    found = evidence.ranks.setdefault(rank, RankEvidence(rank, node))
    if found.node != node:
        text = f"rank {rank} left files on node {found.node} and on node {node}"
        evidence.add_defect("rank-twice", f"node-{node}", text)
    return found


def _node_sample(line: dict[str, Any]) -> NodeSample | None:
    number = reading.reading
    t, listed = number(line.get("t")), line.get("devices")
    if t is None or not isinstance(listed, list):
        return None
    devices = tuple(
        DeviceSample(
            str(d.get("kind", "device")),
            int(number(d.get("index")) or 0),
            number(d.get("util_percent")),
            number(d.get("memory_bytes")),
            number(d.get("power_watts")),
        )
        for d in listed
        if isinstance(d, dict)
    )
    return NodeSample(
        t,
        number(line.get("cpu_percent")),
        number(line.get("memory_bytes")),
        devices,
        number(line.get("node_cpu_percent")),
        number(line.get("net_sent_bytes")),
        number(line.get("net_received_bytes")),
        number(line.get("disk_read_bytes")),
        number(line.get("disk_write_bytes")),
    )


def _lines(path: Path, evidence: RunEvidence) -> Iterator[tuple[int, dict[str, Any] | None]]:
    name = _relative(path, evidence)
    try:
        data = reading.read_bytes(path)
    except ValueError as error:
        evidence.add_defect("unreadable", name, f"{name} cannot be read: {error}")
        return
    for number, value in reading.lines(data):
        if value is None:
            evidence.add_defect("truncated", name, f"{name} line {number} is not complete JSON")
        yield number, value


def _relative(path: Path, evidence: RunEvidence) -> str:
    try:
        return str(path.relative_to(evidence.root))
    except ValueError:
        return str(path)
