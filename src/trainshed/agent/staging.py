"""Bringing trees to a node and taking them away. Every copy is the store's; this only says what and when."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trainshed.errors import TrainshedError
from trainshed.plan.model import Transfer


class StagingError(TrainshedError):
    """Something could not be fetched or saved; the message says what, and where the rest lies."""

    code = "staging"


def fetch(transfer: Transfer) -> None:
    """Bring a tree (or a file) to the node."""
    try:
        _copy(transfer.source, transfer.target)
    except (OSError, TrainshedError) as error:
        raise StagingError(f"cannot fetch {transfer.name} from {transfer.source}: {error}") from error


def save(transfer: Transfer, fallback: Path) -> None:
    """Take an output away: to its target, or into the run directory if it has none."""
    target = transfer.target or str(fallback)
    if not os.path.lexists(transfer.source):
        return
    try:
        _copy(transfer.source, target)
    except (OSError, TrainshedError) as error:
        raise StagingError(f"cannot save output {transfer.name} to {target}: {error}") from error


def _copy(source: str, target: str) -> None:
    if "://" not in source and "://" not in target:
        if Path(source).is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
        else:
            Path(target).mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        return
    from trainshed.store import copy

    copy(source, target)
