"""Ways to spoil a result folder: each gives or is a function that changes the folder it is given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

METER = "runs/2/node-1/meter-rank-3.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in path.read_text().splitlines()]


def save(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(x) + "\n" for x in records))


def change(name: str, edit: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    """Edit the records of a JSON-lines file."""

    def spoil(folder: Path) -> None:
        records = lines(folder / name)
        edit(records)
        save(folder / name, records)

    return spoil


def change_json(name: str, edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        edit(value)
        (folder / name).write_text(json.dumps(value, indent=2))

    return spoil


def all_ranks(run: int, edit: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for path in sorted(folder.glob(f"runs/{run}/node-*/meter-rank-*.jsonl")):
            change(str(path.relative_to(folder)), edit)(folder)

    return spoil


def remove(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def set_event(records: list[dict[str, Any]], event: str, **fields: Any) -> None:
    for record in records:
        if record["event"] == event:
            record.update(fields)


def rename(records: list[dict[str, Any]], event: str) -> None:
    for record in records:
        if record["event"] == event:
            record["event"] = "other"


def drop_last(records: list[dict[str, Any]]) -> None:
    del records[-2:]


def jump(records: list[dict[str, Any]]) -> None:
    for record in records[len(records) // 2 :]:
        record["wall"] += 30


def slow_clock(records: list[dict[str, Any]]) -> None:
    """Times pressed together to look twice as fast, wall clock left alone."""
    base = records[0]["mono"]
    for record in records:
        record["mono"] = base + (record["mono"] - base) / 2
        if "at" in record:
            record["at"] = [base + (t - base) / 2 for t in record["at"]]


def lose_steps(records: list[dict[str, Any]]) -> None:
    steps = next(r for r in records if r["event"] == "steps")
    for key in ("counts", "samples", "at"):
        del steps[key][-5:]


def fewer_steps(records: list[dict[str, Any]]) -> None:
    """A rank that did 5 steps less, its file consistent in itself."""
    last = [r for r in records if r["event"] == "steps"][-1]
    for key in ("counts", "samples", "at"):
        del last[key][-5:]
    end = records[-1]
    end["steps"], end["samples"] = end["steps"] - 5, end["samples"] - 5 * 32


def early(records: list[dict[str, Any]]) -> None:
    """All that came after the first epoch is gone, numbered and summed up as if it had been meant so."""
    stop = next(i for i, r in enumerate(records) if r["event"] == "epoch_start" and r["epoch"] == 2)
    tail = records[-2:]
    del records[stop:]
    records += tail
    records[-1]["steps"], records[-1]["samples"] = 50, 50 * 32
    for i, record in enumerate(records):
        record["seq"] = i
    set_event(records, "quality", value=0.9)


def more_samples(records: list[dict[str, Any]]) -> None:
    for record in records:
        if record["event"] == "steps":
            record["samples"] = [64] * len(record["samples"])
    records[-1]["samples"] *= 2


def backwards(records: list[dict[str, Any]]) -> None:
    steps = next(r for r in records if r["event"] == "steps")
    steps["at"][20], steps["at"][21] = steps["at"][21], steps["at"][20]


def step_in_evaluation(records: list[dict[str, Any]]) -> None:
    """The last step of the first epoch is said to have ended while evaluation ran."""
    steps = next(r for r in records if r["event"] == "steps")
    start = next(r for r in records if r["event"] == "eval_start")
    steps["at"][-1] = start["mono"] + 0.5


def truncate(name: str, keep: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return spoil


def twice(folder: Path) -> None:
    """Run 3 replaced by a copy of run 2."""
    shutil.rmtree(folder / "runs/3")
    shutil.copytree(folder / "runs/2", folder / "runs/3")


def restarted(folder: Path) -> None:
    path = folder / METER
    path.write_text(path.read_text() * 2)


def unmade(folder: Path) -> None:
    """A run that never happened is noted as begun."""
    change_json("session.json", lambda s: s["runs"].append("run-4"))(folder)


def text_edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return spoil


def link(folder: Path) -> None:
    (folder / METER).unlink()
    (folder / METER).symlink_to("meter-rank-2.jsonl")
