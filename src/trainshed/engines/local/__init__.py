"""Engine `local`: virtual nodes on this machine, without a daemon.

The engine itself is in `engine`, which a driver has no need to load.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "ENGINE":
        raise AttributeError(name)
    from trainshed.engines.local.engine import ENGINE

    return ENGINE
