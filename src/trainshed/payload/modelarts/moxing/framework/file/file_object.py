"""`File`: an object of a store (or a local file) opened as Python opens files.

Reading fetches pieces as they are needed, all of one version. Writing goes to a local scratch file that is
uploaded whole by `flush` and `close`, so a reader never sees half a file.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: PTH118, PTH202
# Scripts pass plain strings and expect the errors of plain os calls.

import io
import os

from moxing.framework.file import file_io, remote
from moxing.framework.file.errors import MoxFileNotExistsException

_PIECE = 4 << 20


class _RemoteBytes(io.RawIOBase):
    def __init__(self, location):
        super().__init__()
        self._location, self._client, self._at = location, remote.client(location.scheme), 0
        head = None if location.looks_like_directory else self._client.head(location.bucket, location.key)
        if head is None:
            raise MoxFileNotExistsException(f"no such file: {location}")
        self.size = int(head.headers.get("content-length") or 0)
        self._etag = head.headers.get("etag", "").strip('"')

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self):
        return self._at

    def readinto(self, buffer):
        count = min(len(buffer), self.size - self._at)
        if count <= 0:
            return 0
        view = memoryview(buffer).cast("B")[:count]
        with remote.translated():
            answer = self._client.get(
                self._location.bucket,
                self._location.key,
                start=self._at,
                length=count,
                into=view,
                if_match=self._etag,
            )
        if answer.body:
            view[:] = answer.body
        self._at += count
        return count


class File:
    """As the built-in `open`, for paths and URLs; with `size()`."""

    def __init__(self, name, mode="r", encoding=None, newline=None, errors=None, buffering=-1):
        self.name, self.mode = os.fspath(name), mode
        self._scratch = None
        text = "b" not in mode
        if text and encoding is None:
            encoding = "utf-8"
        if set(mode) - set("rwab+t") or sum(mode.count(c) for c in "rwa") != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        if not remote.is_remote(self.name):
            self._file = open(self.name, mode, encoding=encoding, newline=newline, errors=errors)  # noqa: SIM115
            return
        location = remote.parse_url(self.name)
        if "r" in mode and "+" not in mode:
            with remote.translated():
                raw = io.BufferedReader(_RemoteBytes(location), _PIECE)
            self._file = raw if not text else io.TextIOWrapper(raw, encoding, errors, newline)
            return
        if location.looks_like_directory:
            raise IsADirectoryError(f"is a directory: {self.name}")
        import tempfile

        self._scratch = tempfile.mkdtemp(prefix="moxing-")
        path = os.path.join(self._scratch, "file")
        try:
            if "w" in mode or ("a" in mode and not file_io._is_file(self.name)):
                open(path, "wb").close()
            else:
                remote.copy_tree(self.name, path)
            self._file = open(path, mode, encoding=encoding, newline=newline, errors=errors)  # noqa: SIM115
        except BaseException:
            self._clear()
            raise
        self._path, self._dirty = path, "w" in mode

    def size(self):
        if self._scratch is None:
            return file_io.get_size(self.name)
        self._file.flush()
        return os.path.getsize(self._path)

    def write(self, data):
        self._dirty = True
        return self._file.write(data)

    def writelines(self, lines):
        self._dirty = True
        self._file.writelines(lines)

    def truncate(self, size=None):
        self._dirty = True
        return self._file.truncate(size)

    def flush(self):
        self._file.flush()
        if self._scratch is not None and self._dirty:
            remote.copy_tree(self._path, self.name, force=True)
            self._dirty = False

    def close(self):
        if self._file.closed:
            return
        try:
            self.flush()
        finally:
            self._drop()

    def _drop(self):
        self._file.close()
        if self._scratch is not None:
            self._clear()

    def _clear(self):
        import shutil

        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and self._scratch is not None:
            self._drop()  # what failed half-way does not replace what is there
            return
        self.close()

    def __iter__(self):
        return iter(self._file)

    def __next__(self):
        return next(self._file)

    def __getattr__(self, name):
        if name in ("_file", "_scratch", "_path"):
            raise AttributeError(name)
        return getattr(self._file, name)
