"""Makes run directories and result folders with known numbers, as a run leaves them behind.

Time is written, not waited for: a made run of minutes takes milliseconds. All
files of a made run agree with one another as those of an honest run do.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from chained import chain_run

from trainshed.bench import folder as folders
from trainshed.bench.judge.rules import DatasetRule, MllogRule, Rules, Target
from trainshed.bench.measure import system
from trainshed.bench.result import Measured
from trainshed.bench.run.workload import Workload
from trainshed.runs.chain import NONCE_LABEL

CHECKSUM = "sha256:" + "a" * 64
WALL = 1_750_000_000.0
BOOT = WALL - 1000.0
"""When the machine was started: wall minus monotonic clock."""
SUBMITTED, STARTED = -5.0, 0.001
"""Seconds from when the ranks ran."""
AFTER = 15.0
"""Seconds from the end of a run to the next."""


@dataclass
class MadeRun:
    """A run of `nodes` × `per_node` ranks with steps of about `step` seconds, begun `at` seconds after WALL."""

    nodes: int = 2
    per_node: int = 2
    steps: int = 100
    batch: int = 32
    step: float = 0.1
    compile_seconds: float = 3.0
    epochs: int = 2
    eval_seconds: float = 1.0
    accuracies: tuple[float, ...] = (0.7, 0.8)
    seed: int = 1
    checksum: str = CHECKSUM
    rank_speed: dict[int, float] = field(default_factory=dict)
    state: str = "succeeded"
    watts: float | None = None
    jitter: float = 0.0003
    run_id: str = ""
    at: float = 0.0
    label: str = ""
    emulated: bool = False
    train_samples: int = 6400
    target: float = 0.75
    single_server: bool = False
    nonce: str = ""
    """Of a Tester that sees the run while it is made."""
    lines: int = 1
    """Lines of steps in an epoch: a meter writes one each quarter of a second."""

    @property
    def world(self) -> int:
        return self.nodes * self.per_node

    @property
    def together(self) -> int:
        """How many ranks train one model."""
        return self.per_node if self.single_server else self.world

    @property
    def kind(self) -> str:
        return "cpu" if self.watts is None else "nvidia"

    def write(self, root: Path) -> Path:
        root.mkdir(parents=True, exist_ok=True)
        self.name = self.run_id or root.name
        self.duration = 0.0
        for rank in range(self.world):
            self._rank(root / f"node-{rank // self.per_node}", rank)
        (root / "job.yaml").write_text(yaml.safe_dump(self._job(), sort_keys=False))
        (root / "plan.json").write_text(json.dumps(self._plan()))
        (root / "events").mkdir(exist_ok=True)
        for writer, found in self._events().items():
            save(root / "events" / f"{writer}.jsonl", [{"v": 1, **event} for event in found])
        for node in range(self.nodes):
            self._metrics(root / f"node-{node}", node)
        return root

    def _job(self) -> dict[str, Any]:
        return {
            "name": "made",
            "launcher": "pytorch",
            "entry": "train.py",
            "parameters": {"epochs": self.epochs, "seed": self.seed, "target": self.target},
            "resources": {"nodes": self.nodes, "devices": self.per_node, "kind": self.kind},
        }

    def _plan(self) -> dict[str, Any]:
        arguments = [f"--{name}={value}" for name, value in self._job()["parameters"].items()]
        nodes = [
            {
                "index": node,
                "name": f"worker-{node}",
                "processes": [
                    {
                        "name": f"rank-{r}",
                        "rank": r,
                        "helper": False,
                        "argv": ["python", "train.py", *arguments],
                    }
                    for r in range(node * self.per_node, (node + 1) * self.per_node)
                ],
            }
            for node in range(self.nodes)
        ]
        return {
            "version": 1,
            "run": self.name,
            "size": self.world,
            "launcher": "pytorch",
            "contract": "plain",
            "kind": self.kind,
            "emulated": self.emulated,
            "isolated": True,
            "env": {"TRAINSHED_RUN_ID": self.name},
            "nodes": nodes,
        }

    def _events(self) -> dict[str, list[dict[str, Any]]]:
        zero, over = WALL + self.at, WALL + self.at + self.duration
        code = 0 if self.state == "succeeded" else 1
        common: dict[str, Any] = {
            "name": "made",
            "engine": "local",
            "shape": f"{self.nodes}x{self.per_node}",
            "user": "me",
        }
        if self.label:
            common["labels"] = {folders.LABEL: self.label} | ({NONCE_LABEL: self.nonce} if self.nonce else {})
        if self.emulated:
            common["emulated"] = True
        outcome: dict[str, Any] = {"state": self.state, "exit_code": code}
        if self.state == "failed":
            outcome["failure"] = {"cause": "rank", "reason": "rank-0 exited with 1", "node": 0, "process": "rank-0",
                                  "exit_code": 1, "log": "node-0/rank-0.log",
                                  "last_lines": ["ValueError: no such <b>file</b>"]}  # fmt: skip
        found: dict[str, list[dict[str, Any]]] = {
            "submit": [
                {"time": zero + SUBMITTED, "kind": "submitted", **common, "launcher": "pytorch",
                 "contract": "plain", "isolation": "sandbox", "team": "default"}
            ],
            "driver-1": [{"time": zero - 4.5, "kind": "attempt", "attempt": 1}],
            "coordinator-1": [
                {"time": zero, "kind": "running", "attempt": 1},
                {"time": over + 0.4, "kind": "attempt-finished", "attempt": 1, **outcome},
            ],
            "end": [
                {"time": over + 0.6, "kind": "finished", **outcome, **common, "attempt": 1,
                 "submitted": zero + SUBMITTED, "started": zero}
            ],
        }  # fmt: skip
        for node in range(self.nodes):
            found[f"node-{node}-1"] = self._node_events(node, zero, over, code)
        return found

    def _node_events(self, node: int, zero: float, over: float, code: int) -> list[dict[str, Any]]:
        phases = [("fetch code", zero - 3.5, 0.5), ("fetch inputs", zero - 1, 2.45), ("barrier", zero, 0.4)]
        ranks = range(node * self.per_node, (node + 1) * self.per_node)
        events = [{"time": t, "kind": "phase", "attempt": 1, "phase": p, "seconds": s} for p, t, s in phases]
        events += [
            {
                "time": zero + STARTED + i / 1e3,
                "kind": "started",
                "attempt": 1,
                "process": f"rank-{r}",
                "pid": 14 + i,
            }
            for i, r in enumerate(ranks)
        ]
        events += [
            {
                "time": over + 0.1 + i / 1e3,
                "kind": "exited",
                "attempt": 1,
                "process": f"rank-{r}",
                "returncode": code,
            }
            for i, r in enumerate(ranks)
        ]
        events.append(
            {
                "time": over + 0.3,
                "kind": "phase",
                "attempt": 1,
                "phase": "run",
                "seconds": self.duration + 0.28,
            }
        )
        return events

    def _rank(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        node, local = divmod(rank, self.per_node)
        pen = Pen(WALL - BOOT + self.at + rank / 1e4)
        chance = random.Random(f"{self.seed} {rank}")
        pen.mark("meter", format=1, rank=rank, world=self.together, pid=14 + local, host=f"worker-{node}")
        pen.mark("seed", value=self.seed)
        pen.mark(
            "dataset", name="made", checksum=self.checksum, train_samples=self.train_samples, eval_samples=400
        )
        pen.mark("setting", key="global_batch_size", value=self.batch * self.together)
        pen.mark("phase_start", name="prepare")
        pen.now += 2
        pen.mark("phase_stop", name="prepare")
        pen.mark("start")
        done, per_epoch, log = 0, self.steps // self.epochs, []
        speed = self.step * self.rank_speed.get(rank, 1.0)
        pen.now += self.compile_seconds
        for epoch in range(1, self.epochs + 1):
            pen.mark("epoch_start", epoch=epoch)
            begin, at = pen.now, []
            for k in range(1, per_epoch + 1):
                # A step ends a moment early or late; at the ends of windows it does not, so that sums are known.
                late = 0.0 if k % 10 == 0 or k == per_epoch else chance.uniform(-1, 1) * self.jitter
                at.append(round(begin + k * speed + late, 6))
            pen.now = begin + per_epoch * speed
            size = -(-len(at) // self.lines)
            for first in range(0, len(at), size):
                pen.steps(done + first, self.batch, at[first : first + size])
            done += len(at)
            pen.mark("epoch_stop", epoch=epoch)
            pen.mark("eval_start", epoch=epoch)
            pen.now += self.eval_seconds
            pen.mark("eval_stop", epoch=epoch)
            if epoch <= len(self.accuracies):
                pen.mark("quality", name="accuracy", epoch=epoch, value=self.accuracies[epoch - 1])
                log.append(f"epoch {epoch} accuracy={self.accuracies[epoch - 1]:.4f}\n")
        pen.mark("stop", status="success")
        pen.mark("end", steps=done, samples=done * self.batch, dropped=0)
        self.duration = max(self.duration, pen.now - (WALL - BOOT) - self.at)
        save(folder / f"meter-rank-{rank}.jsonl", pen.lines)
        (folder / f"rank-{rank}.log").write_text("".join(log))

    def _metrics(self, folder: Path, node: int) -> None:
        chance, lines, sent = random.Random(f"{self.seed} node {node}"), [], 1_000_000
        for second in range(int(self.duration) + 1):
            sent += chance.randrange(200_000, 400_000)
            devices = []
            if self.watts is not None:
                devices = [
                    {"kind": "nvidia", "index": i, "util_percent": 80.0 + i, "memory_bytes": 2**30,
                     "power_watts": self.watts + second % 3}
                    for i in range(self.per_node)
                ]  # fmt: skip
            lines.append(
                {
                    "t": WALL + self.at + second,
                    "cpu_percent": 55.0,
                    "node_cpu_percent": round(chance.uniform(90, 110), 1),
                    "memory_bytes": 2**31 + chance.randrange(1 << 20),
                    "net_sent_bytes": sent,
                    "net_received_bytes": sent + second,
                    "devices": devices,
                }
            )
        save(folder / "metrics.jsonl", lines)


class Pen:
    """Writes lines of a meter with both clocks; `now` is the monotonic one."""

    def __init__(self, begin: float) -> None:
        self.now = begin
        self.lines: list[dict[str, Any]] = []

    def mark(self, event: str, **fields: Any) -> None:
        self.lines.append(
            {"event": event, "mono": self.now, "wall": self.now + BOOT, **fields, "seq": len(self.lines)}
        )

    def steps(self, first: int, batch: int, at: list[float]) -> None:
        self.lines.append(
            {"event": "steps", "mono": at[-1], "wall": at[-1] + BOOT, "first": first, "counts": [1] * len(at),
             "samples": [batch] * len(at), "at": at, "seq": len(self.lines)}
        )  # fmt: skip


def save(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(x) + "\n" for x in records))


def made_rules(**changes: Any) -> Rules:
    values: dict[str, Any] = {
        "workload": "made",
        "framework": "pytorch",
        "sample": "images",
        "runs": 3,
        "nodes": 2,
        "ranks": 4,
        "min_steps": 100,
        "metered": True,
        "synchronous": True,
        "target": Target(value=0.75),
        "dataset": DatasetRule(name="made", checksum=CHECKSUM, train_samples=6400, eval_samples=400),
        "log_patterns": {"quality": r"accuracy=([0-9.]+)"},
        "mllog": MllogRule(benchmark="resnet", ruleset="4.0.0"),
    }
    return Rules(**{**values, **changes})


def made_workload(**changes: Any) -> Workload:
    """The workload whose rules `made_rules` are."""
    rules = made_rules()
    assert rules.dataset is not None
    values: dict[str, Any] = {
        "name": "made",
        "model": "",
        "sample": "images",
        "metered": True,
        "synchronous": True,
        "log_patterns": rules.log_patterns,
        "mllog": rules.mllog,
        "implementations": {"pytorch": {"code": ".", "launcher": "pytorch"}},
        "scales": {
            "tiny": {
                "shape": "2x2",
                "dataset": rules.dataset.model_dump() | {"folder": "data"},
                "target": rules.target,
                "min_steps": 100,
            }
        },
    }
    return Workload(**{**values, **changes})


def made_result(
    tmp: Path,
    rules: Rules | None = None,
    runs: list[MadeRun] | None = None,
    seal: bool = True,
    one_device: Measured | None = None,
    chained: bool = False,
) -> Path:
    """A whole result folder of made runs, one after another."""
    rules = rules or made_rules()
    runs = runs or [MadeRun(seed=i, step=0.1 + i / 1000) for i in (1, 2, 3)]
    result = tmp / "result"
    folders.begin(result, rules, system.describe(nodes=rules.nodes, framework="made 1.0"), one_device)
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(WALL - 60))
    session = folders.load_session(result).model_copy(update={"created": begun})
    folders.save_session(result, session)
    at = 0.0
    for index, run in enumerate(runs, 1):
        run.at, run.label = at, session.run_label(index)
        source = run.write(tmp / "source" / f"run-{index}")
        if chained:
            chain_run(source, run.name, run.nonce)
        folders.add_run(result, source)
        at += run.duration + AFTER
    folders.collect(result)
    if seal:
        folders.finish(result)
    return result
