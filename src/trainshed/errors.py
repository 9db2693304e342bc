"""The one root of every error a user may see.

It is written where a job's own Python can read it too, with the copy engine; this is its name in Trainshed.
"""

from __future__ import annotations

from trainshed.payload.modelarts.trainshed_store.errors import (
    NotFoundError,
    RefusedError,
    TrainshedError,
    UsageError,
)

__all__ = ["MissingEnvironmentError", "NotFoundError", "RefusedError", "TrainshedError", "UsageError"]


class MissingEnvironmentError(NotFoundError):
    """A framework environment that can be made, but has not been."""

    code = "no-environment"

    def __init__(self, message: str, hint: str, name: str) -> None:
        super().__init__(message, hint)
        self.name = name
