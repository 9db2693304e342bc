"""Engine `slurm`: nodes are an allocation of a Slurm cluster.

Kept light: the starter on every node lives in this package too, and a
thousand of them should not load what only a submission needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainshed.engines.slurm.engine import SlurmEngine

    ENGINE: SlurmEngine


def __getattr__(name: str) -> object:
    if name == "ENGINE":
        from trainshed.engines.slurm.engine import ENGINE

        return ENGINE
    raise AttributeError(name)
