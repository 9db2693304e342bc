"""The exceptions scripts catch by name."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import collections
import errno

Response = collections.namedtuple("Response", "status reason errorCode errorMessage")


class MoxFileNotExistsException(FileNotFoundError):
    """No such file or directory."""

    def __init__(self, message):
        super().__init__(errno.ENOENT, str(message))


class MoxFileNameDuplicateException(FileExistsError):
    """A file is where a directory is wanted, or the other way round."""

    def __init__(self, message):
        super().__init__(errno.EEXIST, str(message))


class MoxFileRespException(Exception):
    """The store answered with an error; `resp` has status, reason, errorCode and errorMessage."""

    def __init__(self, resp):
        super().__init__(getattr(resp, "errorMessage", resp))
        self.resp = resp


class MoxFileReadException(MoxFileRespException):
    """An object could not be read whole."""
