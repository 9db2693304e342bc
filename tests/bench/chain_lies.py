"""Lies about a chained result, each with the rule that must name it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chained import PATH, rebuilt
from lies import event, faster, moved, several
from spoils import all_ranks, change, remove

from trainshed.runs.chain import NONCE_LABEL

Records = list[dict[str, Any]]
Lie = Callable[[Path], None]
RUN = f"runs/1/{PATH}"
SAMPLES = "runs/1/node-0/metrics.jsonl"


def raw(edit: Callable[[list[bytes]], None]) -> Lie:
    """The lines of the chain changed as they are, without signing them."""

    def lie(folder: Path) -> None:
        path = folder / RUN
        lines = path.read_bytes().splitlines(keepends=True)
        edit(lines)
        path.write_bytes(b"".join(lines))

    return lie


def edited(edit: Callable[[dict[str, Any]], Any], at: int) -> Lie:
    """One record changed in its fields."""

    def change_line(lines: list[bytes]) -> None:
        record = json.loads(lines[at])
        edit(record)
        lines[at] = json.dumps(record, separators=(",", ":")).encode() + b"\n"

    return raw(change_line)


def nonce_claimed(folder: Path) -> None:
    for writer in ("submit", "end"):
        event(1, writer, lambda r: [e.setdefault("labels", {}).update({NONCE_LABEL: "0" * 32}) for e in r])(
            folder
        )


def chain_of_run_2(folder: Path) -> None:
    (folder / RUN).write_bytes((folder / f"runs/2/{PATH}").read_bytes())


def only_at_the_end(name: str) -> Callable[[Records], None]:
    """A file noted once with nothing but its first line, and whole only with the last record: written in one go."""

    def edit(records: Records) -> None:
        with_file = [r for r in records if name in r["heads"]]
        for record in with_file[1:-1]:
            del record["heads"][name]
        records[-1]["heads"][name] = with_file[-1]["heads"].pop(name)

    return edit


def late(records: Records) -> None:
    for record in records:
        record["time"] += 600


def paused(records: Records) -> None:
    """Nothing noted in the middle of the run, which was made longer than its evidence is."""
    for record in records[len(records) // 2 :]:
        record["time"] += 400


def swapped(records: Records) -> None:
    records[2], records[3] = records[3], records[2]


CHAIN_LIES: list[tuple[str, Lie, str]] = [
    ("no chain under a nonce", several(nonce_claimed, remove(RUN)), "chain-missing"),
    ("record taken out", raw(lambda lines: lines.pop(3) and None), "chain-broken"),
    ("records swapped", raw(lambda lines: lines.insert(2, lines.pop(3))), "chain-broken"),
    ("record's time changed", edited(lambda r: r.update(time=r["time"] + 1), 2), "chain-broken"),
    ("record's head changed", edited(lambda r: r["heads"].clear(), -1), "chain-broken"),
    ("last key changed", edited(lambda r: r.update(key="0" * 64), -1), "chain-broken"),
    ("chain of another format", edited(lambda r: r.update(v=2), 0), "chain-broken"),
    ("file name that no chain covers", rebuilt(1, lambda r: r[1]["heads"].update({"../x": [0, "0" * 64]})), "chain-broken"),
    ("end of the chain cut off", raw(lambda lines: lines.pop() and None), "chain-unfinished"),
    ("another run's chain", chain_of_run_2, "chain-foreign"),
    ("nonce written in afterwards", nonce_claimed, "chain-foreign"),
    ("nonce only in the chain", rebuilt(1, lambda r: r[0].update(nonce="0" * 32)), "chain-foreign"),
    ("meter stretched", all_ranks(1, lambda r: faster(r, 0.9)), "chain-differs"),
    ("meter moved", all_ranks(1, lambda r: moved(r, 0.001)), "chain-differs"),
    ("sample removed", change(SAMPLES, lambda r: r.pop(3) and None), "chain-differs"),
    ("events reordered", event(1, "node-0-1", lambda r: r.insert(0, r.pop(1)) or True), "chain-differs"),
    ("plan changed a little", lambda f: _append(f / "runs/1/plan.json", b" ", front=True), "chain-differs"),
    ("samples file gone", remove(SAMPLES), "chain-differs"),
    ("file that shrank", rebuilt(1, lambda r: r[-1]["heads"].update({"job.yaml": [1, "0" * 64]})), "chain-differs"),
    ("meter not in the chain", rebuilt(1, lambda r: [x["heads"].pop("node-0/meter-rank-0.jsonl", 0) for x in r] and None),
     "chain-uncovered"),
    ("event added afterwards", event(1, "node-0-1", lambda r: r.append(r[-1]) or True), "chain-uncovered"),
    ("samples added afterwards", change(SAMPLES, lambda r: r.extend(r[-2:])), "chain-uncovered"),
    ("whole chain made later", rebuilt(1, late), "chain-time"),
    ("long pause", rebuilt(1, paused), "chain-time"),
    ("records not in the order of time", rebuilt(1, swapped), "chain-time"),
    ("samples written in one go", rebuilt(1, only_at_the_end("node-0/metrics.jsonl")), "chain-content"),
    ("lines of the future", rebuilt(1, lambda r: _all_at_first(r, "node-0/metrics.jsonl")), "chain-content"),
]  # fmt: skip


def _append(path: Path, data: bytes, front: bool = False) -> None:
    path.write_bytes(data + path.read_bytes() if front else path.read_bytes() + data)


def _all_at_first(records: Records, name: str) -> None:
    """The whole file noted before its lines could be."""
    last = next(r["heads"][name] for r in reversed(records) if name in r["heads"])
    for record in records:
        record["heads"].pop(name, None)
    records[1]["heads"][name] = last
