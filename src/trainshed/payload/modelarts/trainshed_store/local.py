"""A destination directory nothing can be written outside of.

Every path is walked from the root's descriptor, component by component, without following links, so neither
a hostile name nor a link planted in the destination leads outside. A file appears whole, by rename.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DiskFullError, StoreError
from .tree import PARTIAL_PREFIX, PARTIAL_SUFFIX

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 128 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _unique() -> str:
    """A unique name; a process number is not enough, since nodes have the same process numbers."""
    return os.urandom(8).hex()


class Root:
    """The directory `path`, created if need be. Paths given to it are relative and already checked."""

    def __init__(self, path: str) -> None:
        with explained(path):
            Path(path).mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = path
        self._suffix, self._count = _unique(), itertools.count()

    def close(self) -> None:
        os.close(self._fd)

    @contextmanager
    def parent(self, name: str, *, create: bool = True) -> Iterator[tuple[int, str]]:
        """Descriptor of the directory that holds `name`, and the last component."""
        parts = name.split("/")
        fd = os.dup(self._fd)
        try:
            for depth, part in enumerate(parts[:-1]):
                try:
                    inner = self._enter(fd, part, create=create)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        blocked = "/".join(parts[: depth + 1])
                        raise StoreError(
                            f"{self.path}/{blocked} is a link or a file, {name!r} needs a directory there",
                            "remove it or choose another destination",
                        ) from error
                    raise
                os.close(fd)
                fd = inner
            yield fd, parts[-1]
        finally:
            os.close(fd)

    @staticmethod
    def _enter(fd: int, part: str, *, create: bool) -> int:
        try:
            return os.open(part, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if not create:
                raise
            try:
                os.mkdir(part, dir_fd=fd)
            except FileExistsError:
                pass  # another thread was first
            return os.open(part, _DIRECTORY, dir_fd=fd)

    def make_directory(self, name: str) -> None:
        with explained(f"{self.path}/{name}"), self.parent(name + "/."):
            pass

    def write(self, name: str, data: bytes | memoryview, mtime: float, mode: int | None) -> None:
        """Put a whole file in place at once."""
        temporary = f"{PARTIAL_PREFIX}{self._suffix}-{next(self._count)}{PARTIAL_SUFFIX}"
        with explained(f"{self.path}/{name}"), self.parent(name) as (fd, last):
            file = os.open(temporary, _NEW, 0o666, dir_fd=fd)
            try:
                try:
                    write_all(file, data, 0)
                    settle(file, mtime, mode)
                finally:
                    os.close(file)
                os.rename(temporary, last, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                os.unlink(temporary, dir_fd=fd)
                raise

    def remove(self, name: str) -> None:
        """Delete a file or link, or an empty directory; nothing if it is gone."""
        try:
            with self.parent(name, create=False) as (fd, last):
                try:
                    os.unlink(last, dir_fd=fd)
                except (IsADirectoryError, PermissionError):
                    os.rmdir(last, dir_fd=fd)
        except FileNotFoundError:
            pass

    def remove_empty(self, name: str) -> bool:
        """Delete a directory if it is empty; says whether it did."""
        try:
            with self.parent(name, create=False) as (fd, last):
                os.rmdir(last, dir_fd=fd)
                return True
        except (OSError, StoreError):
            return False

    def partial(self, name: str, size: int, version: str) -> Partial:
        return Partial(self, name, size, version)


class Partial:
    """A large file being written in parts, in any order; a later call with the same version continues it.

    Beside the data lies a journal of finished parts with their checksums; on resumption each is computed again,
    so no crash can pass wrong bytes off as finished.
    """

    def __init__(self, root: Root, name: str, size: int, version: str) -> None:
        self._root, self._name, self.size = root, name, size
        tag = hashlib.sha1(name.rsplit("/", 1)[-1].encode("utf-8", "surrogateescape")).hexdigest()[:20]  # noqa: S324
        self._data = f"{PARTIAL_PREFIX}{tag}{PARTIAL_SUFFIX}"
        self._log = f"{PARTIAL_PREFIX}{tag}-journal{PARTIAL_SUFFIX}"
        self._head = f"{version} {size}\n"
        self._finished: dict[int, bytes] = {}
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with explained(self.path), root.parent(name) as (fd, _):
            self._journal = os.open(self._log, flags | os.O_APPEND, 0o600, dir_fd=fd)
            try:
                fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Another copier writes this file: work beside it under our own name.
                os.close(self._journal)
                unique = f"{PARTIAL_PREFIX}{_unique()}"
                self._data, self._log = f"{unique}{PARTIAL_SUFFIX}", f"{unique}-journal{PARTIAL_SUFFIX}"
                self._journal = os.open(self._log, flags | os.O_APPEND | os.O_EXCL, 0o600, dir_fd=fd)
            self._file = os.open(self._data, flags, 0o666, dir_fd=fd)

    @property
    def path(self) -> str:
        return f"{self._root.path}/{self._name}"

    def resume(self, part: int, digest_of: Callable[[bytes], bytes]) -> dict[int, bytes]:
        """Parts already here and intact (number → digest), for this part size."""
        head = f"{part} {self._head}"
        text = os.pread(self._journal, 1 << 26, 0).decode("ascii", "replace")
        known: dict[int, bytes] = {}
        if text.startswith(head):
            for line in text[len(head) :].splitlines():
                number, _, digest = line.partition(" ")
                if number.isdigit():
                    start = int(number) * part
                    data = os.pread(self._file, min(part, self.size - start), start)
                    if digest_of(data).hex() == digest:
                        known[int(number)] = bytes.fromhex(digest)
        else:
            os.ftruncate(self._journal, 0)
            os.write(self._journal, head.encode())
        with explained(self.path):
            os.ftruncate(self._file, self.size)
        return known

    def write(self, start: int, data: memoryview) -> None:
        with explained(self.path):
            write_all(self._file, data, start)

    def finished(self, number: int, digest: bytes) -> None:
        """Note that a part is here as a whole."""
        with explained(self.path):
            os.write(self._journal, f"{number} {digest.hex()}\n".encode())

    def read_back(self, start: int, length: int) -> bytes:
        return os.pread(self._file, length, start)

    def finish(self, mtime: float, mode: int | None) -> None:
        with explained(self.path), self._root.parent(self._name) as (fd, last):
            settle(self._file, mtime, mode)
            os.rename(self._data, last, src_dir_fd=fd, dst_dir_fd=fd)
            os.unlink(self._log, dir_fd=fd)
        self.close()

    def discard(self) -> None:
        """Forget what is here: it belongs to a version that no longer exists, or is damaged."""
        with self._root.parent(self._name) as (fd, _):
            for name in (self._data, self._log):
                try:
                    os.unlink(name, dir_fd=fd)
                except FileNotFoundError:
                    pass
        self.close()

    def close(self) -> None:
        os.close(self._file)
        os.close(self._journal)


def write_all(fd: int, data: bytes | memoryview, start: int) -> None:
    """Write in pieces: for larger ones the kernel looks for large pages, which may cost more than the copy."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view[:_PIECE], start)
        view, start = view[count:], start + count


def settle(fd: int, mtime: float, mode: int | None) -> None:
    """Set what a finished file keeps of its source: the time, and whether it may be executed."""
    if mode is not None and mode & 0o111:
        os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | (mode & 0o111))
    if mtime:
        os.utime(fd, (mtime, mtime))


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(
                f"no room to write {path}: {error.strerror}", "free space; the same command again resumes"
            ) from error
        if isinstance(error, IsADirectoryError):
            raise StoreError(f"{path} is a directory, a file is to be written there", "remove it") from error
        raise StoreError(
            f"cannot write {path}: {error.strerror}", "check the path and its permissions"
        ) from error
