"""The one root of every error a user may see.

It knows nothing of the rest of the package. An error says what happened and
where (`message`), what to do about it (`hint`), and carries a stable `code`
for programs. `exit_code` is what the command line returns for it.
"""

from __future__ import annotations


class TrainshedError(Exception):
    """Something went wrong that the user can be told in one sentence."""

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
    exit_code = 2


class NotFoundError(UsageError):
    """A run, file, environment or object that was named does not exist."""

    code = "not-found"


class RefusedError(UsageError):
    """The request is well formed but this machine or cluster cannot serve it."""

    code = "refused"
