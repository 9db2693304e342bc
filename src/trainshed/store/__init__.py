"""Object stores and files: URLs, one copy engine, credentials, the embedded store's life.

It knows nothing of jobs, runs or servers. Everything here but the embedded store's start is
standard library only and runs on Python 3.7, because scripts in foreign environments reach it
through the `moxing` module.
"""

from __future__ import annotations

from trainshed.store.api import cat, disk_usage, exists, list_tree, read_bytes, remove, write_bytes
from trainshed.store.copy import copy
from trainshed.store.credentials import Credentials, resolve
from trainshed.store.errors import (
    AccessDeniedError,
    ChecksumError,
    CopyError,
    DiskFullError,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from trainshed.store.location import Location, parse_url
from trainshed.store.progress import Progress, Summary
from trainshed.store.tree import Entry, Problem

__all__ = [
    "AccessDeniedError",
    "ChecksumError",
    "CopyError",
    "Credentials",
    "DiskFullError",
    "Entry",
    "Location",
    "ObjectNotFoundError",
    "Problem",
    "Progress",
    "StoreError",
    "StoreUnavailableError",
    "Summary",
    "cat",
    "copy",
    "disk_usage",
    "exists",
    "list_tree",
    "parse_url",
    "read_bytes",
    "remove",
    "resolve",
    "write_bytes",
]
