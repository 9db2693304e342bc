"""Makes run directories and result folders with known numbers, as a run leaves them behind.

Time is written, not waited for: a made run of minutes takes milliseconds.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.bench import folder as folders
from trainshed.bench import system
from trainshed.bench.result import Measured
from trainshed.bench.rules import DatasetRule, MllogRule, Rules, Target

CHECKSUM = "sha256:" + "a" * 64
WALL = 1_790_000_000.0


@dataclass
class MadeRun:
    """A run of `nodes` × `per_node` ranks with equal steps of `step` seconds."""

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
    noise: float = 0.0
    run_id: str = ""

    def write(self, root: Path) -> Path:
        root.mkdir(parents=True, exist_ok=True)
        world = self.nodes * self.per_node
        name = self.run_id or root.name
        (root / "job.yaml").write_text("name: made\n")
        (root / "plan.json").write_text(json.dumps({"run": name, "size": world, "nodes": []}))
        self.duration = 0.0
        for rank in range(world):
            self._rank(root / f"node-{rank // self.per_node}", rank, world)
        events = [
            {"time": WALL - 5, "kind": "submitted", "name": "made", "engine": "local"},
            {"time": WALL, "kind": "running"},
            {"time": WALL + self.duration, "kind": "finished", "state": self.state, "exit_code": 0},
        ]
        (root / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
        for node in range(self.nodes):
            self._metrics(root / f"node-{node}")
            phases = [
                ("fetch code", WALL - 3.5, 0.5),
                ("fetch inputs", WALL - 1, 2.5),
                ("barrier", WALL, 0.4),
            ]
            lines = [{"time": t, "kind": "phase", "phase": p, "seconds": s} for p, t, s in phases]
            (root / f"node-{node}" / "events.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
        return root

    def _rank(self, folder: Path, rank: int, world: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        pen = Pen(1000.0 + rank)
        pen.mark(
            "meter", format=1, rank=rank, world=world, pid=100 + rank, host=f"node-{rank // self.per_node}"
        )
        pen.mark("seed", value=self.seed)
        pen.mark("dataset", name="made", checksum=self.checksum, train_samples=1600, eval_samples=400)
        pen.mark("setting", key="global_batch_size", value=self.batch * world)
        pen.mark("phase_start", name="prepare")
        pen.now += 2
        pen.mark("phase_stop", name="prepare")
        pen.mark("start")
        done, per_epoch = 0, self.steps // self.epochs
        for epoch in range(1, self.epochs + 1):
            pen.mark("epoch_start", epoch=epoch)
            at = []
            for _ in range(per_epoch):
                jitter = 1 + self.noise * random.Random(f"{self.seed} {done + len(at)}").uniform(-1, 1)
                pen.now += jitter * self.step * self.rank_speed.get(rank, 1.0) + (
                    0 if done + len(at) else self.compile_seconds
                )
                at.append(round(pen.now, 6))
            pen.steps(done, self.batch, at)
            done += len(at)
            pen.mark("epoch_stop", epoch=epoch)
            pen.mark("eval_start", epoch=epoch)
            pen.now += self.eval_seconds
            pen.mark("eval_stop", epoch=epoch)
            if epoch <= len(self.accuracies):
                pen.mark("quality", name="accuracy", epoch=epoch, value=self.accuracies[epoch - 1])
        pen.mark("stop", status="success")
        pen.mark("end", steps=done, samples=done * self.batch, dropped=0)
        self.duration = max(self.duration, pen.now - pen.begin)
        (folder / f"meter-rank-{rank}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in pen.lines))
        (folder / f"rank-{rank}.log").write_text("epoch 1\nepoch 2\n")

    def _metrics(self, folder: Path) -> None:
        lines = []
        for second in range(int(self.duration) + 1):
            devices = []
            if self.watts is not None:
                devices = [
                    {"kind": "nvidia", "index": i, "util_percent": 80.0 + i, "memory_bytes": 2**30,
                     "power_watts": self.watts + second % 3}
                    for i in range(self.per_node)
                ]  # fmt: skip
            lines.append({"t": WALL + second, "cpu_percent": 55.0, "memory_bytes": 2**31, "devices": devices})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


class Pen:
    """Writes lines of a meter with both clocks."""

    def __init__(self, begin: float) -> None:
        self.begin = self.now = begin
        self.lines: list[dict[str, Any]] = []

    def mark(self, event: str, **fields: Any) -> None:
        wall = WALL + self.now - self.begin
        self.lines.append({"event": event, "mono": self.now, "wall": wall, **fields, "seq": len(self.lines)})

    def steps(self, first: int, batch: int, at: list[float]) -> None:
        counts, samples = [1] * len(at), [batch] * len(at)
        self.mark("steps", first=first, counts=counts, samples=samples, at=at)


def made_rules(**changes: Any) -> Rules:
    values: dict[str, Any] = {
        "workload": "made",
        "sample": "images",
        "runs": 3,
        "nodes": 2,
        "ranks": 4,
        "min_steps": 100,
        "target": Target(value=0.75),
        "dataset": DatasetRule(name="made", checksum=CHECKSUM, train_samples=1600, eval_samples=400),
        "mllog": MllogRule(benchmark="resnet", ruleset="4.0.0"),
    }
    return Rules(**{**values, **changes})


def made_result(
    tmp: Path,
    rules: Rules | None = None,
    runs: list[MadeRun] | None = None,
    seal: bool = True,
    one_device: Measured | None = None,
) -> Path:
    """A whole result folder of made runs."""
    rules = rules or made_rules()
    runs = runs or [MadeRun(seed=i, step=0.1 + i / 1000) for i in (1, 2, 3)]
    result = tmp / "result"
    folders.begin(result, rules, system.describe(nodes=rules.nodes, framework="made 1.0"), one_device)
    for index, run in enumerate(runs, 1):
        folders.add_run(result, run.write(tmp / "source" / f"run-{index}"))
    folders.collect(result)
    if seal:
        folders.finish(result)
    return result
