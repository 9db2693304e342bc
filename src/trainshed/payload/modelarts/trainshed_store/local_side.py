"""The end of a copy that is a local directory, read and written in parts.

Reading pins a version, by size and time: bytes of two versions are never mixed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from . import checksum
from .errors import ChecksumError, StoreError
from .local import Partial, Root
from .parts import ChangedError, Meta, fetched_part_size, part_size
from .remote_side import RemoteReading
from .s3.wire import Sink
from .tree import Entry, Problem, local_name_problem, scan_local


class LocalReader:
    def __init__(self, root: str, *, follow_links: bool) -> None:
        self.root, self._follow = root, follow_links

    def entries(self) -> Iterator[Entry | Problem]:
        return scan_local(self.root, follow_links=self._follow)

    def open(self, entry: Entry) -> LocalReading:
        return LocalReading(os.path.join(self.root, entry.name) if entry.name else self.root)  # noqa: PTH118


class LocalReading:
    """An open local file whose size and time must not change until it is closed."""

    md5 = crc32 = ""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise ChangedError("vanished before it was copied") from error
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}", "check its permissions") from error
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(self._fd)
            raise StoreError(f"{path} is not a file", "name a file")
        self._seen = (info.st_size, info.st_mtime_ns)
        self.size = info.st_size
        executable = info.st_mode & 0o111
        self.meta = Meta(info.st_mtime, info.st_mode if executable else None)
        self.version = f"{info.st_dev}-{info.st_ino}-{info.st_mtime_ns}"

    def read(self, start: int, into: memoryview) -> memoryview:
        have = 0
        while have < len(into):
            count = (
                os.preadv(self._fd, [into[have:]], start + have)
                if _PREADV
                else self._pread(start, into, have)
            )
            if not count:
                raise ChangedError("became shorter while it was copied")
            have += count
        return into

    def _pread(self, start: int, into: memoryview, have: int) -> int:
        data = os.pread(self._fd, len(into) - have, start + have)
        into[have : have + len(data)] = data
        return len(data)

    def settled(self) -> None:
        info = os.fstat(self._fd)
        if (info.st_size, info.st_mtime_ns) != self._seen:
            raise ChangedError("changed while it was copied")

    def close(self) -> None:
        os.close(self._fd)


_PREADV = hasattr(os, "preadv")


class LocalWriter:
    """Writes below a directory; `verify` re-reads nothing unless the grid of parts differs."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def problem(self, name: str) -> str:
        return local_name_problem(name)

    def put(self, name: str, data: memoryview, meta: Meta) -> None:
        self._root.write(name, data, meta.mtime, meta.mode)

    def make_directory(self, name: str) -> None:
        self._root.make_directory(name)

    def begin(self, name: str, reading: LocalReading | RemoteReading) -> LocalWriting:
        return LocalWriting(self._root, name, reading)

    def delete(self, entries: list[Entry], keep: set[str]) -> int:
        for entry in entries:
            self._root.remove(entry.name)
            parent = entry.name.rpartition("/")[0]
            while parent and parent not in keep and self._root.remove_empty(parent):
                parent = parent.rpartition("/")[0]
        return len(entries)


class LocalWriting:
    def __init__(self, root: Root, name: str, reading: LocalReading | RemoteReading) -> None:
        self._reading = reading
        self._partial = root.partial(name, reading.size, reading.version)
        self.part = part_size(reading.size)
        if isinstance(reading, RemoteReading) and reading.crc32:  # an MD5 of parts dictates their size
            self.part = fetched_part_size(reading.size, is_local=reading.is_local)
        by_crc32 = bool(reading.crc32) or isinstance(reading, LocalReading)
        self._digest = checksum.crc32 if by_crc32 else checksum.md5
        try:
            self.have = self._partial.resume(self.part, self._digest)
        except BaseException:
            self._partial.close()
            raise

    def write(self, number: int, data: memoryview) -> bytes:
        self._partial.write(number * self.part, data)
        digest = self._digest(data)
        self._partial.finished(number, digest)
        return digest

    def fetch(self, number: int, reading: RemoteReading, buffer: memoryview) -> bytes:
        """Write a part as it comes, without holding it."""
        start = number * self.part
        sink = _PartSink(
            min(self.part, reading.size - start), buffer, self._partial, start, bool(reading.crc32)
        )
        reading.pour(start, sink)
        digest = sink.digest()
        self._partial.finished(number, digest)
        return digest

    def finish(self, digests: list[bytes], *, verify: bool) -> bool:
        """Move the file into place; returns whether its content could be verified."""
        verified = self._verified(digests) if verify else False
        meta = self._reading.meta
        self._partial.finish(meta.mtime, meta.mode)
        return verified

    def _verified(self, digests: list[bytes]) -> bool:
        wanted = etag = self._reading.md5
        if isinstance(self._reading, LocalReading):
            return True
        plain, _, count = etag.partition("-")
        if self._reading.crc32:
            wanted = plain = self._reading.crc32
            lengths = [min(self.part, self._partial.size - n * self.part) for n in range(len(digests))]
            actual = checksum.to_header(checksum.joined_crc32(digests, lengths))
        elif not etag:
            return False
        elif count == str(len(digests)):
            actual = checksum.md5(b"".join(digests)).hex()
        elif not count and len(plain) == 32:
            actual = self._hash(0, self._partial.size).hexdigest()
        else:
            part = self._reading.uploaded_part_size()
            if not part or str(-(-self._partial.size // part)) != count:
                return False
            starts = range(0, self._partial.size, part)
            joined = b"".join(self._hash(s, min(part, self._partial.size - s)).digest() for s in starts)
            actual = checksum.md5(joined).hex()
        if actual != plain:
            path = self._partial.path
            self._partial.discard()
            raise ChecksumError(
                f"bytes fetched for {path} do not match the checksum {wanted}", "copy it again"
            )
        return True

    def _hash(self, start: int, length: int) -> hashlib._Hash:
        digest = hashlib.md5()  # noqa: S324
        end = start + length
        while start < end:
            data = self._partial.read_back(start, min(1 << 20, end - start))
            digest.update(data)
            start += len(data)
        return digest

    def suspend(self) -> None:
        self._partial.close()

    def discard(self) -> None:
        self._partial.discard()


class _PartSink(Sink):
    """Where one part of a file goes, and its checksum on the way."""

    def __init__(self, length: int, buffer: memoryview, partial: Partial, start: int, by_crc32: bool) -> None:
        super().__init__(length, buffer)
        self._partial, self._start, self._by_crc32 = partial, start, by_crc32
        self.restart()

    def restart(self) -> None:
        self._at = self._start
        self._running = checksum.Crc32() if self._by_crc32 else hashlib.md5()  # noqa: S324

    def take(self, data: memoryview) -> None:
        self._running.update(data)
        self._partial.write(self._at, data)
        self._at += len(data)

    def digest(self) -> bytes:
        return self._running.digest()
