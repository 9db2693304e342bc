"""Bringing trees to a node and taking them away. Every copy is the store's; this only says what and when."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.agent.inputs import Cache, Tell
from trainshed.codefiles import code_files
from trainshed.errors import TrainshedError
from trainshed.plan.model import Transfer


class StagingError(TrainshedError):
    """Something could not be fetched or saved; the message says what, and what was saved."""

    code = "staging"


def fetch(
    transfer: Transfer, access: StoreAccess, cache: Cache | None = None, tell: Tell | None = None
) -> None:
    """Bring a tree (or a file, into the folder) to the node; from the cache if it holds just this content."""
    try:
        if transfer.name == "code" and "://" not in transfer.source:
            _copy_code(transfer, access, tell)
        elif cache is None or not cache.provide(transfer.source, transfer.target, tell):
            copy(transfer.source, transfer.target, access, tell=tell)
    except (OSError, TrainshedError) as error:
        raise StagingError(f"cannot fetch {transfer.name} from {transfer.source}: {error}") from error


def save(transfer: Transfer, fallback: Path, access: StoreAccess, tell: Tell | None = None) -> None:
    """Take an output away: to its target, or into the run directory if it has none."""
    target = transfer.target or str(fallback)
    if not os.path.lexists(transfer.source):
        return
    try:
        copy(transfer.source, target, access, tell=tell)
    except (OSError, TrainshedError) as error:
        again = shlex.join(["trainshed", "cp", f"{transfer.source}/", f"{target.rstrip('/')}/"])
        raise StagingError(
            f"cannot save output {transfer.name} to {target}: {error}; what is left is saved by: {again}"
        ) from error


def check_target(transfer: Transfer, access: StoreAccess) -> None:
    """Before work is spent: can the target be written?"""
    from trainshed import store

    try:
        store.check_target(transfer.target, credentials=access.keys(transfer.target))
    except TrainshedError as error:
        raise StagingError(f"{transfer.name} cannot be saved to {transfer.target}: {error}") from error


def _copy_code(transfer: Transfer, access: StoreAccess, tell: Tell | None) -> None:
    found = code_files(Path(transfer.source), transfer.left_out)
    copy(transfer.source, transfer.target, access, None if found.complete else found.names, tell)
    for name in found.empty:
        Path(transfer.target, name).mkdir(parents=True, exist_ok=True)


def copy(
    source: str,
    target: str,
    access: StoreAccess,
    only: Sequence[str] | None = None,
    tell: Tell | None = None,
) -> None:
    """A folder's content into a folder, or a file into it: whole, checked, resumed when done again."""
    from trainshed import store

    folder, keys = f"{target.rstrip('/')}/", access.credentials
    done = store.copy(source, folder, empty_ok=True, only=only, progress=tell, resolve=keys)
    if not done.complete:
        left = (*done.unrepresentable, *done.unstable)
        named = ", ".join(f"{problem.name} ({problem.reason})" for problem in left[:3])
        raise StagingError(f"{len(left)} of its files were not copied: {named}")
