"""Examples and workloads that come with Trainshed: in the installed package, or in the checkout it runs from."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from trainshed.errors import NotFoundError

_INSTALLED = Path(__file__).parent / "_shipped"
_ROOT = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).resolve().parents[2]


def examples() -> dict[str, Path]:
    """Name → folder of each example."""
    return {path.parent.name: path.parent for path in sorted((_ROOT / "examples").glob("*/job.yaml"))}


def example_data() -> Path:
    """What several examples share: small data, and the script that makes the rest of them."""
    return _ROOT / "examples" / "data"


def workloads() -> dict[str, Path]:
    """Name → folder of each workload."""
    return {path.parent.name: path.parent for path in sorted((_ROOT / "workloads").glob("*/workload.yaml"))}


def workload(path: Path) -> Path:
    """The folder of a shipped workload, if its name is given and no such path exists; else the path itself."""
    if path.exists() or len(path.parts) != 1:
        return path
    known = workloads()
    if found := known.get(path.name):
        return found
    near = get_close_matches(path.name, known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise NotFoundError(
        f"{path}: no such workload",
        f"{meant}give a folder that holds workload.yaml, or one of {', '.join(known)}",
    )
