"""The main job on the embedded default: benchmark ResNet (tiny) with MindSpore on 2 nodes × 2 devices.

The data goes through the embedded object store, the workload runs three times
with different seeds, and the end is a checked result with a report.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import environments  # beside this file
from trainshed.errors import TrainshedError

ROOT = Path(__file__).resolve().parents[1]
TRAINSHED = str(Path(sys.executable).with_name("trainshed"))
WORKLOAD = ROOT / "workloads" / "resnet50"
DATA = ROOT / "build" / "digits-16"
URL = "obs://demo/digits-16/"


def main() -> int:
    try:
        environments.make("mindspore")
    except TrainshedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    again = [
        TRAINSHED,
        "bench",
        "run",
        str(WORKLOAD),
        "-f",
        "mindspore",
        "-j",
        "2x2",
        "-n",
        "3",
        "--data",
        URL,
    ]
    steps = [
        [sys.executable, str(WORKLOAD / "make_data.py"), str(DATA)],
        [TRAINSHED, "sync", str(DATA), URL, "--delete"],
        again,
    ]
    try:
        for step in steps:
            done = subprocess.run(step)
            if done.returncode != 0:
                return done.returncode
    except KeyboardInterrupt:
        return 130
    finally:
        subprocess.run([TRAINSHED, "store", "down"], capture_output=True, start_new_session=True)
    words = [word.replace(f"{ROOT}/", "") for word in again]
    print(f"\nagain: make demo, or with the store up (trainshed store up): {' '.join(words)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
