"""The main job on the embedded default: benchmark ResNet (tiny) with MindSpore, first one short run, then on 2 nodes × 2 devices.

A first run gives a verdict soon; then the data go through the embedded object
store and the workload runs three times with different seeds. Runs, results and
the environment are the user's own: every command of the shell finds them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import environments  # beside this file
from trainshed.errors import TrainshedError
from trainshed.home import trainshed_home

TRAINSHED = str(Path(sys.executable).with_name("trainshed"))
DATA = trainshed_home(os.environ) / "data" / "digits-16"
URL = "obs://demo/digits-16/"
FIRST = [TRAINSHED, "bench", "run", "resnet50", "-f", "mindspore", "-s", "smoke"]
AGAIN = [TRAINSHED, "bench", "run", "resnet50", "-f", "mindspore", "-j", "2x2", "-n", "3"]


def main() -> int:
    try:
        environments.make("mindspore")
    except TrainshedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the store is stopped then, too
    was_up = _store_is_up()
    steps = [FIRST, [TRAINSHED, "sync", str(DATA), URL, "--delete"], [*AGAIN, "--data", URL]]
    try:
        for step in steps:
            print(f"\n$ {_shown(step)}", flush=True)
            done = subprocess.run(step)
            if done.returncode != 0:
                return done.returncode
    except KeyboardInterrupt:
        return 130
    finally:
        if not was_up:
            subprocess.run([TRAINSHED, "store", "down"], capture_output=True, start_new_session=True)
    print(f"\nall results: {_shown([TRAINSHED, 'bench', 'history'])}\nagain: {_shown(AGAIN)}")
    return 0


def _store_is_up() -> bool:
    asked = subprocess.run([TRAINSHED, "store", "status", "--json"], capture_output=True, text=True)
    try:
        return bool(json.loads(asked.stdout).get("running"))
    except ValueError:
        return False


def _shown(command: list[str]) -> str:
    """As typed in the folder where make was called."""
    here = f"{Path.cwd()}/"
    return " ".join(word.removeprefix(here) for word in command)


if __name__ == "__main__":
    sys.exit(main())
