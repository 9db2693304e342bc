"""What can go wrong between this machine and a store, as the user is told it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainshed.errors import NotFoundError, TrainshedError

if TYPE_CHECKING:
    from trainshed.store.progress import Summary


class StoreError(TrainshedError):
    """The store, or the way to it, failed."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The store did not answer, or answered only with errors, until the retries ended."""

    code = "store-unavailable"


class AccessDeniedError(StoreError):
    """The store knows the caller too little: wrong key, wrong signature, or no right to the bucket."""

    code = "store-denied"


class ChecksumError(StoreError):
    """Bytes arrived, but not those that were sent; retries did not help."""

    code = "store-checksum"


class DiskFullError(StoreError):
    """The destination has no room left."""

    code = "disk-full"


class ObjectNotFoundError(NotFoundError):
    """No such file, object or prefix."""

    code = "not-found"


class PreconditionError(StoreError):
    """The object is no longer the version that was asked for."""

    code = "store-changed"


class CopyError(StoreError):
    """A copy ended early. `summary` says what was finished; the same copy again resumes."""

    code = "copy-failed"

    def __init__(self, message: str, hint: str = "", *, code: str = "", summary: Summary | None = None):
        super().__init__(message, hint, code=code)
        self.summary = summary
