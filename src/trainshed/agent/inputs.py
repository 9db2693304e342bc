"""Inputs kept between runs by their content, so that a second run starts at once.

A slot is named after what the object store says of the tree: names, sizes and
entity tags. Nodes get hard links to it; a job that changes such a file in
place changes the slot too, which the next run notices (size and time differ)
and fetches again. The oldest slots are removed when the cache is full.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.files import hold, locked
from trainshed.runs.progress import Copied

_LOCK_LIMIT = 6 * 3600.0
"""Seconds one node may take to fetch what others wait for."""
DEFAULT_LIMIT = 20 << 30

Tell = Callable[[Copied], None]
"""Is called with the progress of a copy."""


class Cache:
    """Slots below one folder, together at most `limit` bytes."""

    def __init__(self, folder: Path, access: StoreAccess, limit: int = DEFAULT_LIMIT) -> None:
        self._folder, self._store = folder, access
        self._limit = limit

    def provide(self, source: str, target: str, tell: Tell | None = None) -> bool:
        """Put the tree at `target`; False when it is none for the cache: local, empty, or too large."""
        if "://" not in source:
            return False
        from trainshed import store

        keys = self._store.keys(source)
        entries = [entry for entry in store.list_tree(source, credentials=keys) if not entry.is_directory]
        size = sum(entry.size for entry in entries)
        if not entries or size > self._limit // 2 or not all(entry.etag for entry in entries):
            return False
        listing = sorted((entry.name, entry.size, entry.etag) for entry in entries)
        slot = self._folder / hashlib.sha256(json.dumps([source, listing]).encode()).hexdigest()[:32]
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / f"{slot.name}.lock", _LOCK_LIMIT, "the input cache"):
            if not _is_whole(slot):
                self._fill(slot, source, size, tell)
            _link(slot / "tree", Path(target))
            os.utime(slot)
        return True

    def _fill(self, slot: Path, source: str, size: int, tell: Tell | None) -> None:
        from trainshed import store

        shutil.rmtree(slot, ignore_errors=True)
        self._make_room(size)
        tree = slot / "tree"
        tree.mkdir(parents=True)
        store.copy(source, f"{tree}/", progress=tell, resolve=self._store.credentials)
        (slot / "manifest.json").write_text(json.dumps(_manifest(tree)))

    def _make_room(self, wanted: int) -> None:
        ages = {slot: age for slot in self._folder.iterdir() if (age := _age(slot)) is not None}
        slots = sorted(ages, key=lambda slot: ages[slot])
        sizes = {slot: sum(size for size, _ in _read_manifest(slot).values()) for slot in slots}
        for slot in slots:
            if sum(sizes.values()) + wanted <= self._limit:
                return
            lock = hold(self._folder / f"{slot.name}.lock")
            if lock is None:
                continue  # a node reads it
            try:
                shutil.rmtree(slot, ignore_errors=True)
            finally:
                os.close(lock)
            del sizes[slot]


def _age(slot: Path) -> float | None:
    """When a slot was last used; None if it is not a slot, or was removed by another node."""
    try:
        info = slot.stat()
    except FileNotFoundError:
        return None
    return info.st_mtime if stat.S_ISDIR(info.st_mode) else None


def _is_whole(slot: Path) -> bool:
    """Whether the slot was filled to the end and nobody has touched its files since."""
    expected = _read_manifest(slot)
    return bool(expected) and expected == _manifest(slot / "tree")


def _read_manifest(slot: Path) -> dict[str, list[int]]:
    try:
        found = json.loads((slot / "manifest.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _manifest(tree: Path) -> dict[str, list[int]]:
    found = {}
    for path in tree.rglob("*"):
        if path.is_file():
            info = path.stat()
            found[str(path.relative_to(tree))] = [info.st_size, info.st_mtime_ns]
    return found


def _link(tree: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(tree.rglob("*")):
        copy = target / path.relative_to(tree)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        copy.unlink(missing_ok=True)
        try:
            copy.hardlink_to(path)
        except OSError:
            # Another file system: a copy is as good, only slower.
            shutil.copy2(path, copy)
