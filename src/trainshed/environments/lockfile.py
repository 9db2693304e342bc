"""Lock files: every package of an environment with its version and the sha256 of its wheels.

They are requirements files as pip reads them with --require-hashes. Written by
`scripts/lock.py`, shipped with Trainshed; a wheel whose hash is not in its lock
is never installed.
"""

from __future__ import annotations

import re
from pathlib import Path

LOCKS = Path(__file__).parent / "locks"
FULL_LOCK = LOCKS / "full.txt"
CUDA_LOCK = LOCKS / "cuda.txt"
"""Frameworks in the build that most registries have."""
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)((?:[ \\\n]+--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def normal_name(package: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", package).lower()


def entries(path: Path) -> dict[str, str]:
    """Package → its lines in the lock."""
    text = path.read_text(encoding="utf-8")
    return {normal_name(found[1]): found[0] for found in _ENTRY.finditer(text)}


def locked_versions(path: Path) -> dict[str, str]:
    """Package → version."""
    text = path.read_text(encoding="utf-8")
    return {normal_name(found[1]): found[2] for found in _ENTRY.finditer(text)}
