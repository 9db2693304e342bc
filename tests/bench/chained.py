"""Chains for made runs, as a coordinator writes them while a run goes on, and as a liar writes them afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainshed.runs.chain import COVERED, ChainWriter, Head, path_of

PATH = path_of(1)
_CLOCKS = {"events": "time", "metrics": "t", "meter": "wall"}


def chain_run(root: Path, run: str, nonce: str = "", period: float = 3.0) -> None:
    """Chain a made run: at each moment every file holds the lines that state an earlier time."""
    files = {
        name: _lines(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and COVERED.match(name := path.relative_to(root).as_posix())
    }
    attempt = [at for at, _ in files["events/coordinator-1.jsonl"]]
    now, over = attempt[0] - 2.0, attempt[-1] + 0.05
    writer = ChainWriter(root / PATH, run, nonce, now)
    known: dict[str, Head] = {}
    while (now := now + period) < over:
        writer.append(_heads(files, now, known), now)
    writer.close(_heads(files, over, known), over)


def rebuilt(run: int, edit: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    """A chain written again after its records were edited: unbroken, and signed by whoever lies."""

    def lie(folder: Path) -> None:
        path = folder / f"runs/{run}/{PATH}"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        edit(records)
        path.unlink()
        first, *middle, last = records
        writer = ChainWriter(path, first["run"], first["nonce"], first["time"])
        for record in middle:
            writer.append(_noted(record), record["time"])
        writer.close(_noted(last), last["time"])

    return lie


def rechained(folder: Path, run: int) -> None:
    """A chain made from what the files hold now."""
    root = folder / f"runs/{run}"
    opening = json.loads((root / PATH).read_text().splitlines()[0])
    (root / PATH).unlink()
    chain_run(root, opening["run"], opening["nonce"])


def _noted(record: dict[str, Any]) -> dict[str, Head]:
    return {name: Head(*head) for name, head in record["heads"].items()}


def _heads(
    files: dict[str, list[tuple[float, bytes]]], now: float, known: dict[str, Head]
) -> dict[str, Head]:
    """What has changed since the last record."""
    changed = {}
    for name, lines in files.items():
        data = b"".join(line for at, line in lines if at <= now)
        head = Head(len(data), hashlib.sha256(data).hexdigest())
        if data and known.get(name) != head:
            changed[name] = known[name] = head
    return changed


def _lines(path: Path) -> list[tuple[float, bytes]]:
    clock = next((c for k, c in _CLOCKS.items() if path.name.startswith(k) or path.parent.name == k), "")
    if not clock:
        return [(0.0, path.read_bytes())]
    return [(json.loads(line)[clock], line) for line in path.read_bytes().splitlines(keepends=True)]
