"""Files shared by several processes: atomic writes and locks, in one place for all of Trainshed.

A lock is held by a process for as long as it lives, and the kernel releases it:
better than a recorded process number, which another process may have by the
time it is read. Locks belong to the open file, so that a child inherits them,
and asking for one takes none, so that no reader can be taken for a holder.
Standard library and the syntax of Python 3.7 only, because scripts in old
environments reach the store, which uses this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.errors import TrainshedError

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the operating system says of a disk, or a quota, that is full."""
_SET = getattr(fcntl, "F_OFD_SETLK", 37)
_GET = getattr(fcntl, "F_OFD_GETLK", 36)
_FLOCK = "hhqqi4x"
"""struct flock: type, from where, start, length (0: all of it), process (0: the lock is the open file's)."""
_WHOLE = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def write_atomic(path: Path, data: str | bytes, mode: int = 0o644, durable: bool = False) -> None:
    """Replace a file: readers see the old content or all of the new one, also after a kill.

    `durable`: also after a power failure, at the price of waiting for the disk.
    """
    part = path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}.part")
    handle = os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data.encode("utf-8") if isinstance(data, str) else data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def read_regular(path: Path, most: int = 256 << 20, start: int = 0) -> bytes:
    """A file's content from `start` on; OSError at once if it is not a file (a pipe would block) or longer than `most`."""
    handle = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        size = max(0, found.st_size - start)
        if size > most:
            raise OSError(errno.EFBIG, "too large", str(path))
        if start:
            os.lseek(handle, start, os.SEEK_SET)
        # Lists of runs read very many small files: one read each, of their size and no more.
        data = os.read(handle, size + 1)
        while len(data) > size and len(data) < most:  # it grew meanwhile
            more = os.read(handle, min(1 << 20, most - len(data)))
            if not more:
                break
            data += more
        return data
    finally:
        os.close(handle)


def read_line(handle: int, seconds: float) -> bytes:
    """One line of a pipe or socket, and no byte more; empty if it does not come whole within so many seconds."""
    deadline, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        if not _ready(handle, select.POLLIN, deadline):
            return b""
        piece = os.read(handle, 1)
        if not piece:
            return b""
        line += piece
    return line


def write_within(handle: int, data: bytes, seconds: float) -> None:
    """All of it into a pipe or socket; TimeoutError if the other side does not take it in time: it may be frozen."""
    deadline, left = time.monotonic() + seconds, memoryview(data)
    was = os.get_blocking(handle)
    os.set_blocking(handle, False)
    try:
        while left:
            try:
                left = left[os.write(handle, left) :]
            except BlockingIOError as error:
                if not _ready(handle, select.POLLOUT, deadline):
                    raise TimeoutError(errno.ETIMEDOUT, f"not taken within {seconds:.0f} s") from error
    finally:
        os.set_blocking(handle, was)


def _ready(handle: int, event: int, deadline: float) -> bool:
    poll = select.poll()  # unlike select(), for any number of open files
    poll.register(handle, event)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder takes no more: tried, since a quota is seen in no other way."""
    part = folder / f".{os.urandom(8).hex()}.part"
    try:
        part.write_bytes(b"\0" * 4096)
    except OSError as error:
        return error.errno in FULL
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return False


def hold(path: Path) -> int | None:
    """Lock the file for the life of the returned descriptor; None if another process holds it."""
    handle = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(handle, _SET, _WHOLE)
    except OSError:
        os.close(handle)
        return None
    return handle


def is_held(path: Path) -> bool:
    """Whether some living process holds the lock."""
    try:
        # Not blocking: what is there may be anything, also a pipe that nobody writes.
        handle = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        found = struct.unpack(_FLOCK, fcntl.fcntl(handle, _GET, _WHOLE))
    finally:
        os.close(handle)
    return bool(found[0] != fcntl.F_UNLCK)


@contextmanager
def locked(path: Path, seconds: float, what: str) -> Iterator[None]:
    """Hold the lock file; TrainshedError names `what` when others hold it for longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        handle = hold(path)
        if handle is not None:
            break
        if time.monotonic() > deadline:
            raise TrainshedError(
                f"{what} is locked by another process", f"see which one: fuser {path}", code="busy"
            )
        time.sleep(0.02)
    try:
        yield
    finally:
        os.close(handle)
