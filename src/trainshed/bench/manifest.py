"""`manifest.json`: the SHA-256 of every file of a result folder.

Every file but the manifest itself is listed. Links and files that point out of
the folder are faults: a result is what it holds.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from trainshed.bench.measure import reading
from trainshed.bench.result import Reason

NAME = "manifest.json"
FORMAT = "trainshed.manifest/1"
MOST_NAMED = 1000


def digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def build(folder: Path) -> dict[str, object]:
    files = {
        name: {"sha256": digest(folder / name), "bytes": (folder / name).stat().st_size}
        for name in _names(folder)
    }
    return {"format": FORMAT, "files": files}


def write(folder: Path) -> None:
    """Write the manifest atomically; it is the last file of a result."""
    part = folder / (NAME + ".part")
    part.write_text(json.dumps(build(folder), indent=1, sort_keys=True) + "\n", "utf-8")
    part.replace(folder / NAME)


def verify(folder: Path) -> list[Reason]:
    """Files that are missing, changed, added, or links."""
    if not (folder / NAME).exists():
        return [Reason(code="manifest-missing", message=f"{NAME} is missing: the result was not finished")]
    try:
        manifest = reading.read_object(folder / NAME)
        listed = manifest["files"]
        if not isinstance(listed, dict):
            raise ValueError("files is not an object")
        if manifest["format"] != FORMAT:
            return [
                Reason(
                    code="manifest-format",
                    message=f"{NAME} has format {manifest['format']!r:.80}, not {FORMAT!r}",
                )
            ]
    except (ValueError, KeyError) as error:
        return [Reason(code="manifest-unreadable", message=f"{NAME} cannot be read: {error!r:.300}")]
    found: list[Reason] = []
    present = set(_names(folder))
    for path in folder.rglob("*"):
        if path.is_symlink():
            name = str(path.relative_to(folder))
            found.append(
                Reason(code="file-link", message=f"{name} is a link; a result must contain its files")
            )
    absent = sorted(set(listed) - present)
    for name in absent[:MOST_NAMED]:
        text = f"{name:.300} is in the manifest but not in the folder"
        found.append(Reason(code="file-missing", message=text))
    if len(absent) > MOST_NAMED:
        text = f"{len(absent) - MOST_NAMED} more files are in the manifest but not in the folder"
        found.append(Reason(code="file-missing", message=text))
    for name in sorted(listed):
        if name not in present:
            continue
        if not isinstance(listed[name], dict) or digest(folder / name) != listed[name].get("sha256"):
            found.append(Reason(code="file-changed", message=f"{name} was changed after the result was made"))
    for name in sorted(present - set(listed)):
        found.append(Reason(code="file-added", message=f"{name} is in the folder but not in the manifest"))
    return found


def _names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name not in (NAME, NAME + ".part")
    )
