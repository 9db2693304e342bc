"""Homes that are kept: one folder of a user, mounted on all nodes of their jobs.

Jobs write a kept home, so nothing in it is trusted: a link in place of a folder is replaced, never followed.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan


def prepare(node: NodePlan, scratch: Path) -> None:
    """Link the home in an isolated node's scratch to the kept folder, with mount points for what is mounted in it."""
    if not node.kept_home:
        return
    kept = Path(node.kept_home)
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.mkdir(exist_ok=True)
    for seen, _ in node.private:
        if seen.startswith(f"{node.home}/"):
            spot = kept / seen[len(node.home) + 1 :]
            if spot.is_symlink() or (spot.exists() and not spot.is_dir()):
                spot.unlink()
            spot.mkdir(exist_ok=True)
    link = scratch / node.home.lstrip("/")
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(kept, target_is_directory=True)


def make_folder(path: str, home: str) -> None:
    """A folder of the node; below a kept home, a file or link in its place is removed."""
    if not home or not path.startswith(f"{home}/"):
        Path(path).mkdir(parents=True, exist_ok=True)
        return
    step = Path(home)
    for name in Path(path).relative_to(home).parts:
        step /= name
        if step.is_symlink() or (step.exists() and not step.is_dir()):
            step.unlink()
        step.mkdir(exist_ok=True)


def make_link(path: str, target: str) -> None:
    """A link that other jobs may be making at the same time; a file of that name is replaced."""
    part = Path(f"{path}.{secrets.token_hex(8)}")
    part.symlink_to(target)
    try:
        part.replace(path)
    except IsADirectoryError as error:
        part.unlink()
        raise TrainshedError(
            f"{path} is a folder", f"rename it: {target} is linked to by that name"
        ) from error


def take(node: NodePlan) -> None:
    """Move what a node without isolation left in its home to where it is kept; the home itself is gone then."""
    home = Path(node.home)
    if not node.kept_home or not home.is_dir():
        return
    for seen, _ in node.private:
        if seen.startswith(f"{node.home}/"):
            shutil.rmtree(seen, ignore_errors=True)
    for path, _ in node.links:
        Path(path).unlink(missing_ok=True)
    for folder in sorted(map(Path, node.folders), reverse=True):
        _remove_empty(folder, home)
    if any(home.iterdir()):
        Path(node.kept_home).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(home, node.kept_home)


def _remove_empty(folder: Path, top: Path) -> None:
    """A folder and those above it, as far as nothing is in them."""
    while folder != top and folder.is_relative_to(top) and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
