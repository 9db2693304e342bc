"""Object stores and files: URLs, one copy engine, credentials, the embedded store's life.

It knows nothing of jobs, runs or servers. The engine itself is `payload/modelarts/trainshed_store`, which scripts in
foreign environments reach through the `moxing` module; here are what only Trainshed has: profiles, buckets, and the
embedded store.
"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from trainshed.errors import UsageError
from trainshed.payload.modelarts.trainshed_store.copy import copy as _copy
from trainshed.payload.modelarts.trainshed_store.credentials import Credentials
from trainshed.payload.modelarts.trainshed_store.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    ChecksumError,
    CopyError,
    DiskFullError,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from trainshed.payload.modelarts.trainshed_store.location import Location, parse_url
from trainshed.payload.modelarts.trainshed_store.progress import CopySummary, Progress
from trainshed.payload.modelarts.trainshed_store.tree import Entry, Problem
from trainshed.store.api import (
    cat,
    disk_usage,
    exists,
    list_level,
    list_tree,
    read_bytes,
    remove,
    write_bytes,
)
from trainshed.store.buckets import add_bucket, check_target, list_buckets, remove_bucket
from trainshed.store.credentials import resolve


def _no_keys(scheme: str) -> NoReturn:
    raise UsageError(
        f"no keys for {scheme}:// were given", "pass credentials, or resolve=StoreAccess(…).credentials"
    )


copy = partial(_copy, resolve=_no_keys)
"""The copy of the payload; unlike a script's, it never takes keys from its process."""

__all__ = [
    "AccessDeniedError",
    "BucketNotFoundError",
    "ChecksumError",
    "CopyError",
    "CopySummary",
    "Credentials",
    "DiskFullError",
    "Entry",
    "Location",
    "ObjectNotFoundError",
    "Problem",
    "Progress",
    "StoreError",
    "StoreUnavailableError",
    "add_bucket",
    "cat",
    "check_target",
    "copy",
    "disk_usage",
    "exists",
    "list_buckets",
    "list_level",
    "list_tree",
    "parse_url",
    "read_bytes",
    "remove",
    "remove_bucket",
    "resolve",
    "write_bytes",
]
