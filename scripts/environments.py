"""Makes the framework environments that an area's tests use: python scripts/environments.py [AREA]."""

from __future__ import annotations

import sys
import time

from trainshed.environments import Progress, create
from trainshed.errors import TrainshedError

AREAS = {
    "foundation": ("mindspore", "pytorch"),
    "store": (),
    "contracts": ("mindspore", "pytorch", "paddle", "horovod", "tensorflow"),
    "benchmark": ("mindspore", "pytorch", "paddle", "horovod"),
    "platform": (),
    "slurm": ("mindspore", "pytorch", "paddle", "horovod"),
}


def main() -> int:
    area = sys.argv[1] if len(sys.argv) > 1 else ""
    names = AREAS[area] if area else dict.fromkeys(name for group in AREAS.values() for name in group)
    for name in names:
        last = [0.0]

        def tell(news: Progress, last: list[float] = last) -> None:
            if time.monotonic() - last[0] > 10:
                last[0] = time.monotonic()
                print(news, flush=True)

        began = time.monotonic()
        try:
            made = create(name, tell)
        except TrainshedError as error:
            print(f"error: environment {name}: {error}", file=sys.stderr)
            return 1
        print(f"environment {name}: {made.prefix} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
