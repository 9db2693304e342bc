"""The log path: 1,000,000 lines of 16 ranks, kept per rank and shown merged, against `tee`.

Both sides must have every line twice: in a file per rank, and in what was shown.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from races.harness import Race

RANKS, LINES = 16, 62_500
WRITER = f"""\
import os, sys
rank = sys.argv[1] if len(sys.argv) > 1 else os.environ["TRAINSHED_RANK"]
text = "step %d rank " + rank + " loss 0.6931471805599453 throughput 1234.5 samples/s\\n"
for start in range(0, {LINES}, 100):
    sys.stdout.write("".join(text % number for number in range(start, start + 100)))
sys.stdout.flush()
"""


def setup(work: Path) -> None:
    (work / "write.py").write_text(WRITER)
    (work / "job.yaml").write_text(f"name: lines\ncode: .\nentry: write.py\nresources: 2x{RANKS // 2}\n")


def ours(work: Path) -> float:
    env = os.environ | {"TRAINSHED_HOME": str(work / "home")}
    command = [str(Path(sys.executable).with_name("trainshed")), "run", str(work / "job.yaml")]
    shown = work / "ours.log"
    began = time.monotonic()
    with shown.open("wb") as out:
        subprocess.run(command, env=env, check=True, stdout=out, stderr=subprocess.DEVNULL, timeout=600)
    spent = time.monotonic() - began
    kept = [path for path in (work / "home" / "runs").glob("*/node-*/rank-*.log") if path.stat().st_mtime > 0]
    newest = max((path.parents[1] for path in kept), key=lambda path: path.name)
    _check(shown, sorted(newest.glob("node-*/rank-*.log")))
    return spent


def tee(work: Path) -> float:
    shown = work / "tee.log"
    line = f"for r in $(seq 0 {RANKS - 1}); do {sys.executable} write.py $r | tee tee-$r.log & done; wait"
    began = time.monotonic()
    with shown.open("wb") as out:
        subprocess.run(["bash", "-c", line], cwd=work, check=True, stdout=out, timeout=600)
    spent = time.monotonic() - began
    _check(shown, sorted(work.glob("tee-*.log")))
    return spent


def _check(shown: Path, kept: list[Path]) -> None:
    """None lost."""
    counts = [path.read_bytes().count(b" loss ") for path in (shown, *kept)]
    if counts[0] != RANKS * LINES or counts[1:] != [LINES] * RANKS:
        raise RuntimeError(f"lines were lost: {counts}")


RACES = [Race("logs-16-ranks", ours, {"tee": tee}, setup, rounds=3, least=0.9)]
