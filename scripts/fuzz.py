"""Feeds hostile documents to what reads them, for as long as you like: `make fuzz MINUTES=60 TARGET=events`.

What fails is printed with the smallest document that does it; 1 is returned then.
"""

from __future__ import annotations

import random
import resource
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/fuzz")]

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from targets import TARGETS, Target  # noqa: E402

_MEMORY = 3 << 30
"""Bytes of address space: beyond them a reader fails."""
_CPU = 10.0
_BATCH = 100


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    names = sys.argv[2].split(",") if len(sys.argv) > 2 and sys.argv[2] else list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        print(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
        return 2
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    return max([_fuzz(name, TARGETS[name], minutes * 60) for name in names])


def _fuzz(name: str, target: Target, seconds: float) -> int:
    deadline, fed, slowest = time.monotonic() + seconds, 0, 0.0
    while time.monotonic() < deadline:
        number = random.SystemRandom().getrandbits(32)

        def one(data: bytes) -> None:
            nonlocal fed, slowest
            began = time.process_time()
            target.feed(data)
            fed, slowest = fed + 1, max(slowest, time.process_time() - began)
            assert slowest < _CPU, f"{name}: a document took {slowest:.0f} s"

        batch = settings(
            max_examples=_BATCH,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        try:
            seed(number)(batch(given(data=target.inputs())(one)))()
        except Exception:
            print(f"{name}: failed with seed {number} after {fed} documents")
            traceback.print_exc()
            return 1
    print(f"{name}: {fed} documents in {seconds / 60:g} minutes, the slowest {slowest:.2f} s")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
