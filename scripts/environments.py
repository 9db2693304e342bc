"""Makes the framework environments that an area's tests use: python scripts/environments.py [AREA]."""

from __future__ import annotations

import sys
import time

from trainshed.environments import BuildProgress, create
from trainshed.errors import TrainshedError

AREAS = {
    "core": ("mindspore", "pytorch"),
    "hardening": ("pytorch",),
    "field": ("mindspore", "pytorch", "paddle", "horovod", "tensorflow"),
    "foundation": ("mindspore", "pytorch"),
    "store": (),
    "contracts": ("mindspore", "pytorch", "paddle", "horovod", "tensorflow"),
    "benchmark": ("mindspore", "pytorch", "paddle", "horovod"),
    "platform": (),
    "server": (),
    "slurm": ("mindspore", "pytorch", "paddle", "horovod"),
}


def make(name: str) -> None:
    """One environment, with a word every few seconds; nothing to do if it is there."""
    began = last = time.monotonic()

    def tell(news: BuildProgress) -> None:
        nonlocal last
        if time.monotonic() - last > 5:
            last = time.monotonic()
            print(f"  {news}", flush=True)

    made = create(name, tell)
    print(f"environment {name}: {made.prefix} ({time.monotonic() - began:.0f} s)", flush=True)


def main() -> int:
    area = sys.argv[1] if len(sys.argv) > 1 else ""
    every = dict.fromkeys(name for group in AREAS.values() for name in group)
    for name in AREAS.get(area, every):
        try:
            make(name)
        except TrainshedError as error:
            print(f"error: environment {name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
