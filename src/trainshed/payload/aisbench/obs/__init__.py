"""`obs` as ais-bench packages use it: a few calls of ObsClient on the store of the configuration.

Errors are answers with a status, as the official client gives them.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found"
# ruff: noqa: PTH112
# (names are those of the official client)
import os
from types import SimpleNamespace

from moxing import file

from obs import model

__all__ = ["ObsClient", "model"]


class ObsClient:
    """Keys and server come from the configuration, which Trainshed has read itself."""

    def __init__(self, access_key_id="", secret_access_key="", server=None, **more):
        pass

    def putContent(self, bucketName, objectKey, content=None, **more):
        def put():
            if objectKey.endswith("/") and not content:
                file.make_dirs(_url(bucketName, objectKey))
            else:
                file.write(_url(bucketName, objectKey), content or b"")

        return _answer(put)

    def getObject(self, bucketName, objectKey, downloadPath=None, loadStreamInMemory=False, **more):
        def get():
            if downloadPath:
                file.copy(_url(bucketName, objectKey), downloadPath)
                return SimpleNamespace(url=downloadPath)
            data = file.read(_url(bucketName, objectKey), binary=True)
            return SimpleNamespace(buffer=data, size=len(data))

        return _answer(get)

    def putFile(self, bucketName, objectKey, file_path, **more):
        """One file, or what a folder holds."""

        def put():
            if not os.path.isdir(file_path):
                file.copy(file_path, _url(bucketName, objectKey))
                return
            file.copy_parallel(file_path, _url(bucketName, objectKey.rstrip("/") + "/"))

        return _answer(put)

    def deleteObject(self, bucketName, objectKey, **more):
        return _answer(lambda: file.remove(_url(bucketName, objectKey)))

    def headObject(self, bucketName, objectKey, **more):
        return _answer(lambda: file.stat(_url(bucketName, objectKey)))

    def close(self):
        """Connections are the process's own."""


def _url(bucket, key):
    return f"obs://{bucket}/{key}"


def _answer(action):
    try:
        return SimpleNamespace(
            status=200, reason="OK", errorCode=None, errorMessage=None, requestId="", body=action()
        )
    except FileNotFoundError as error:
        return _failed(404, "NoSuchKey", error)
    except Exception as error:  # the official client never raises for a failed request
        return _failed(getattr(getattr(error, "resp", None), "status", 500), type(error).__name__, error)


def _failed(status, code, error):
    return SimpleNamespace(
        status=status, reason=str(error), errorCode=code, errorMessage=str(error), requestId="", body=None
    )
