"""Bringing trees to a node and taking them away. Every copy is the store's; this only says what and when."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.agent.inputs import Cache
from trainshed.errors import TrainshedError
from trainshed.plan.model import Transfer


class StagingError(TrainshedError):
    """Something could not be fetched or saved; the message says what, and what was saved."""

    code = "staging"


def fetch(transfer: Transfer, cache: Cache | None = None) -> None:
    """Bring a tree (or a file, into the folder) to the node; from the cache if it holds just this content."""
    try:
        if cache is None or not cache.provide(transfer.source, transfer.target):
            copy(transfer.source, transfer.target)
    except (OSError, TrainshedError) as error:
        raise StagingError(f"cannot fetch {transfer.name} from {transfer.source}: {error}") from error


def save(transfer: Transfer, fallback: Path) -> None:
    """Take an output away: to its target, or into the run directory if it has none."""
    target = transfer.target or str(fallback)
    if not os.path.lexists(transfer.source):
        return
    try:
        copy(transfer.source, target)
    except (OSError, TrainshedError) as error:
        raise StagingError(f"cannot save output {transfer.name} to {target}: {error}") from error


def copy(source: str, target: str) -> None:
    """A folder's content into a folder, or a file into it: whole, checked, resumed when done again."""
    from trainshed import store

    done = store.copy(source, f"{target.rstrip('/')}/", empty_ok=True)
    if not done.complete:
        left = (*done.unrepresentable, *done.unstable)
        named = ", ".join(f"{problem.name} ({problem.reason})" for problem in left[:3])
        raise StagingError(f"{len(left)} of its files did not get there: {named}")
