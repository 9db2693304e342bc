"""Buckets as wholes, and whether a destination can be written before work is spent on what goes there.

It knows nothing of copying.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.errors import UsageError
from trainshed.payload.modelarts.trainshed_store.credentials import Credentials
from trainshed.payload.modelarts.trainshed_store.errors import StoreError
from trainshed.payload.modelarts.trainshed_store.location import REMOTE_SCHEMES, Location, parse_url
from trainshed.store.api import connected

PROBE = ".trainshed-probe"


def parse_bucket(text: str) -> Location:
    """A bucket by its name or URL."""
    location = parse_url(text if "://" in text else f"s3://{text}")
    if not location.is_remote or location.key:
        raise UsageError(f"{text!r} is not a bucket", "write its name, s3://NAME or obs://NAME")
    return location


def is_store(url: str) -> bool:
    """Whether the text names a store as a whole: `s3://` or `obs://`."""
    return url.endswith("://") and url[:-3] in REMOTE_SCHEMES


def list_buckets(scheme: str = "s3", *, credentials: Credentials | None = None) -> list[str]:
    """Names of all buckets that the caller may see."""
    with connected(Location(scheme), credentials) as client:
        return sorted(client.buckets())


def add_bucket(text: str, *, credentials: Credentials | None = None) -> bool:
    """Make a bucket; says whether it is new."""
    location = parse_bucket(text)
    with connected(location, credentials) as client:
        if client.has_bucket(location.bucket):
            return False
        client.create_bucket(location.bucket)
        return True


def remove_bucket(text: str, *, recursive: bool = False, credentials: Credentials | None = None) -> int:
    """Delete a bucket, with `recursive` also what is in it. Returns how many objects went with it."""
    location = parse_bucket(text)
    with connected(location, credentials) as client:
        keys = [item.key for item in client.listing(location.bucket, "", limit=0 if recursive else 1)]
        if keys and not recursive:
            raise UsageError(
                f"bucket {location.bucket!r} is not empty", "add --recursive to delete all of it"
            )
        client.delete_many(location.bucket, keys)
        client.request("DELETE", location.bucket, "")
        return len(keys)


def check_target(url: str, *, credentials: Credentials | None = None) -> None:
    """Raise now what writing below this path or URL would raise later: no bucket, no right, no such folder.

    In a store an upload is begun and given up, which asks for every right that a write needs and leaves nothing.
    """
    location = parse_url(url)
    if not location.is_remote:
        _check_folder(Path(location.path))
        return
    with connected(location, credentials) as client:
        key = location.prefix + PROBE
        client.abort_multipart(location.bucket, key, client.start_multipart(location.bucket, key))


def _check_folder(path: Path) -> None:
    folder = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not folder.is_dir():
        raise StoreError(f"cannot write below {path}: {folder} is not a directory", "choose another target")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"cannot write below {path}: no permission to write in {folder}", "check its owner and mode"
        )
