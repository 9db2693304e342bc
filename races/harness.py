"""Races against peers: both sides in one run, alternating, several rounds, median of each.

    python -m races.harness [RACE]

A race's callables take a work folder and return seconds (or another `unit` of
which less is better). ratio = peer seconds / our seconds against the fastest
peer, so 1 or more means that ours is at least as fast. Absolute times depend on the machine; the ratio is the result.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
Side = Callable[[Path], float]


@dataclass(frozen=True)
class Race:
    """Our way and the peers' ways to do one thing. `least` is the ratio that is asked of us."""

    name: str
    ours: Side
    peers: dict[str, Side]
    setup: Callable[[Path], None] | None = None
    teardown: Callable[[Path], None] | None = None
    rounds: int = 5
    least: float = 1.0
    unit: str = "s"
    needs: Callable[[], str] = field(default=lambda: "")
    """Why the race cannot be run here; empty if it can."""


def peer_venv(packages: Sequence[str], name: str = "peers") -> Path:
    """A virtual environment with the peers, made on first use; its bin folder is returned."""
    folder = BUILD / f"venv-{name}"
    marker = folder / "made.json"
    if not marker.exists() or json.loads(marker.read_text()) != list(packages):
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", *packages], check=True)
        marker.write_text(json.dumps(list(packages)))
    return folder / "bin"


def seconds_of(argv: Sequence[str | Path], **more: object) -> float:
    """The wall time of one command, which must succeed."""
    began = time.monotonic()
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=600, **more)  # type: ignore[call-overload]
    spent = time.monotonic() - began
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} exited with {done.returncode}: {done.stderr[-2000:]}")
    return spent


def run(race: Race, work: Path) -> dict[str, object]:
    """One race in its own folder: rounds alternate between all sides, after one that does not count."""
    work.mkdir()
    times: dict[str, list[float]] = {"ours": [], **{name: [] for name in race.peers}}
    if race.setup:
        race.setup(work)
    try:
        for number in range(race.rounds + 1):
            for name, side in {"ours": race.ours, **race.peers}.items():
                spent = side(work)
                if number:
                    times[name].append(spent)
    finally:
        if race.teardown:
            race.teardown(work)
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = min(race.peers, key=lambda name: medians[name])
    ratio = medians[best] / medians["ours"]
    print(
        f"race {race.name} ours={medians['ours']:.3f}{race.unit} peer={medians[best]:.3f}{race.unit} {best} "
        f"ratio={ratio:.2f}",
        flush=True,
    )
    return {
        "race": race.name,
        "ours": medians["ours"],
        "peer": medians[best],
        "peer_name": best,
        "ratio": ratio,
        "least": race.least,
        "holds": ratio >= race.least,
        "rounds": times,
    }


def races() -> list[Race]:
    found: list[Race] = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", Path(__file__).stem):
            found += importlib.import_module(f"races.{path.stem}").RACES
    return found


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [race for race in races() if not wanted or race.name.startswith(wanted)]
    if not chosen:
        print(
            f"no race is called {wanted!r}; there are {', '.join(r.name for r in races())}", file=sys.stderr
        )
        return 2
    results = []
    BUILD.mkdir(exist_ok=True)
    # Folders go when all is over: for minutes after many files were deleted, ext4 is slow to make new ones.
    with tempfile.TemporaryDirectory(prefix="races-", dir=BUILD) as folder:
        for race in chosen:
            if reason := race.needs():
                print(f"race {race.name} not run: {reason}", flush=True)
                results.append({"race": race.name, "not_run": reason})
            else:
                results.append(run(race, Path(folder) / race.name))
    report = {
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()},
        "time": time.time(),
        "races": results,
    }
    (BUILD / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(r.get("holds", True) for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
