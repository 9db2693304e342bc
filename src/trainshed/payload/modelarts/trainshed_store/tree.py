"""What is in a tree: files of a directory or objects under a prefix, by relative name, and what cannot be.

It only looks. Names are relative, with slashes; a name that a file system or a store cannot hold becomes a
`Problem`, never a surprise.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .listing import listed
from .location import MAX_KEY_BYTES
from .s3.client import S3Client

PARTIAL_PREFIX = ".trainshed-"
PARTIAL_SUFFIX = ".part"
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4096


class Entry(NamedTuple):
    """A file, object or (empty) directory of a tree. `name` is relative; a directory's has no final slash."""

    name: str
    size: int = 0
    mtime: float = 0.0
    etag: str = ""
    is_directory: bool = False
    changed: float = 0.0
    """When a local file last changed in any way (its ctime, which a rename sets and which cannot be reset)."""


@dataclass(frozen=True)
class Problem:
    """Something of the source that has no place at the destination, and why."""

    name: str
    reason: str


def is_partial(name: str) -> bool:
    """Our own unfinished file: never listed, never copied."""
    return name.startswith(PARTIAL_PREFIX) and name.endswith(PARTIAL_SUFFIX)


def scan_local(root: str, *, follow_links: bool = False) -> Iterator[Entry | Problem]:
    """Files of a directory, and its empty directories.

    Links are read as what they point to when that is inside the tree (or with `follow_links` anywhere);
    others, and loops, are problems.
    """
    real_root = os.path.realpath(root)
    pending: list[tuple[str, str, tuple[str, ...]]] = [(root, "", (real_root,))]
    while pending:
        directory, prefix, above = pending.pop()
        try:
            with os.scandir(directory) as found:
                items = sorted(found, key=lambda item: item.name)
        except OSError as error:
            yield Problem(prefix.rstrip("/") or ".", f"cannot be listed: {error.strerror}")
            continue
        kept = 0
        for item in items:
            name = prefix + item.name
            if is_partial(item.name):
                continue
            kept += 1
            try:
                if item.is_symlink():
                    target = os.path.realpath(item.path)
                    reason = _link_problem(target, real_root, above, follow_links)
                    if reason:
                        yield Problem(name, reason)
                        continue
                info = item.stat()
            except FileNotFoundError:
                continue  # gone since it was listed
            except OSError as error:
                yield Problem(name, f"cannot be read: {error.strerror}")
                continue
            if stat.S_ISDIR(info.st_mode):
                inner = os.path.realpath(item.path) if item.is_symlink() else above[-1] + "/" + item.name
                pending.append((item.path, name + "/", (*above, inner)))
            elif stat.S_ISREG(info.st_mode):
                yield Entry(name, info.st_size, info.st_mtime, changed=info.st_ctime)
            else:
                yield Problem(name, "is neither a file nor a directory (socket, pipe or device)")
        if not kept and prefix:
            yield Entry(prefix[:-1], is_directory=True)


def _link_problem(target: str, root: str, above: tuple[str, ...], follow: bool) -> str:
    if not Path(target).exists():
        return "is a link to nothing"
    if not follow and target != root and not target.startswith(root.rstrip("/") + "/"):
        return "is a link that leaves the source (use --follow-links to copy what it points to)"
    if target in above:
        return "is a link to a directory above itself"
    return ""


def scan_remote(client: S3Client, bucket: str, prefix: str) -> Iterator[Entry]:
    """Objects under a prefix. Keys ending in a slash are directory markers."""
    for item in listed(client, bucket, prefix):
        name = item.key[len(prefix) :]
        if not name:
            continue  # the marker of the tree itself
        if name.endswith("/") and name.strip("/"):
            yield Entry(name[:-1], item.size, item.modified, item.etag, is_directory=True)
        else:
            yield Entry(name, item.size, item.modified, item.etag)


def local_name_problem(name: str) -> str:
    """Why a file system cannot hold this relative name; empty if it can."""
    for part in name.split("/"):
        if part == "":
            return "has an empty name between slashes (leading '/' or '//')"
        if part in (".", ".."):
            return f"has the component '{part}', which would point elsewhere"
        if "\0" in part:
            return "contains a NUL character"
        if len(part.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES:
            return f"has a component longer than {MAX_NAME_BYTES} bytes"
        if is_partial(part):
            return f"has the component '{part}', which is reserved for unfinished files"
    if len(name.encode("utf-8", "surrogateescape")) >= MAX_PATH_BYTES - 256:
        return "is longer than a path may be"
    return ""


def remote_name_problem(prefix: str, name: str) -> str:
    """Why a store cannot hold this key; empty if it can."""
    try:
        length = len((prefix + name).encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if length > MAX_KEY_BYTES:
        return f"gives a key longer than {MAX_KEY_BYTES} bytes"
    return ""
