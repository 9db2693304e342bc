"""The main job on the embedded default: MindSpore on 2 nodes × 2 devices of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from trainshed.environments import create
from trainshed.errors import TrainshedError

ROOT = Path(__file__).resolve().parents[1]
TRAINSHED = Path(sys.executable).with_name("trainshed")
JOB = ROOT / "examples" / "mindspore-digits" / "job.yaml"


def main() -> int:
    try:
        create("mindspore", lambda news: print(f"  {news}", flush=True))
    except TrainshedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    subprocess.run([sys.executable, ROOT / "examples" / "data" / "make_digits.py"], check=True)
    done = subprocess.run([TRAINSHED, "run", JOB, "-j", "2x2"])
    if done.returncode != 0:
        return done.returncode
    shown = subprocess.run(
        [TRAINSHED, "show", "mindspore-digits", "--json"], capture_output=True, text=True, check=True
    )
    folder = Path(json.loads(shown.stdout)["path"])
    (found,) = folder.glob("outputs/node-0/out/result.json")
    result = json.loads(found.read_text())
    print(f"\naccuracy    {result['accuracy']:.4f} (target {result['target']})")
    print(f"throughput  {result['throughput']:.0f} samples/s over {result['ranks']} ranks")
    print(f"logs        {folder}")
    print(f"again       {TRAINSHED.relative_to(ROOT)} run {JOB.relative_to(ROOT)} -j 2x2")
    return 0


if __name__ == "__main__":
    sys.exit(main())
