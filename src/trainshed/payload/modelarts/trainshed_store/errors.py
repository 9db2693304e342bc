"""The one root of every error a user may see, and what can go wrong between this machine and a store.

An error says what happened and where (`message`), what to do about it (`hint`), and has a stable `code` for
programs. `exit_code` is what the command line returns for it. `trainshed.errors` gives the root its usual name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .progress import CopySummary


class TrainshedError(Exception):
    """An error that can be explained to the user in one sentence."""

    code: str = "error"
    exit_code: int = 1

    def __init__(self, message: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(TrainshedError):
    """The request itself is wrong: nothing was started, nothing is left behind."""

    code = "usage"
    exit_code = 64
    """EX_USAGE: scripts end with 1 or 2, so that a refusal is not taken for a rank's own end."""


class NotFoundError(UsageError):
    """A run, file, environment or object that was named does not exist."""

    code = "not-found"


class RefusedError(UsageError):
    """The request is well formed but this machine or cluster cannot serve it."""

    code = "refused"


class StoreError(TrainshedError):
    """The store, or the way to it, failed."""

    code = "store"
    store_code = ""
    """What the object store itself called it, where it did."""


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
    store_code = ""


class BucketNotFoundError(ObjectNotFoundError):
    """No such bucket."""

    code = "no-bucket"


class PreconditionError(StoreError):
    """The object is no longer the version that was asked for."""

    code = "store-changed"


class CopyError(StoreError):
    """A copy ended early. `summary` says what was finished; the same copy again resumes."""

    code = "copy-failed"

    def __init__(self, message: str, hint: str = "", *, code: str = "", summary: CopySummary | None = None):
        super().__init__(message, hint, code=code)
        self.summary = summary
