"""The two ends of a copy: a local directory and a prefix in a bucket, each to be read and written in parts.

An end knows nothing of the other. Reading pins a version: bytes of two versions are never mixed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from trainshed.store import checksum
from trainshed.store.errors import ChecksumError, ObjectNotFoundError, PreconditionError, StoreError
from trainshed.store.local import Partial, Root
from trainshed.store.s3 import CRC32, MODE_HEADER, Client, is_md5, unquoted
from trainshed.store.tree import (
    Entry,
    Problem,
    local_name_problem,
    remote_name_problem,
    scan_local,
    scan_remote,
)
from trainshed.store.wire import Answer, Sink

PART = 8 << 20
MAX_PARTS = 10_000


def part_size(size: int) -> int:
    """Parts of an object of this size: 8 MiB, more only where a store's limit of parts demands it."""
    part = PART
    while part * MAX_PARTS < size:
        part *= 2
    return part


class ChangedError(Exception):
    """The source changed or vanished while it was read: not an error of the copy, but not copied either."""


@dataclass(frozen=True)
class Meta:
    """What a copy keeps besides bytes: modification time and, if known, permission bits."""

    mtime: float
    mode: int | None


class LocalReader:
    def __init__(self, root: str, *, follow_links: bool) -> None:
        self.root, self._follow = root, follow_links

    def entries(self) -> Iterator[Entry | Problem]:
        return scan_local(self.root, follow_links=self._follow)

    def open(self, entry: Entry) -> LocalReading:
        return LocalReading(os.path.join(self.root, entry.name) if entry.name else self.root)  # noqa: PTH118


class LocalReading:
    """An open local file whose size and time must not change until it is closed."""

    etag = crc32 = ""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ChangedError("vanished before it was copied") from None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}", "check its rights") from error
        info = os.fstat(self._fd)
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


class RemoteReader:
    def __init__(self, client: Client, bucket: str, prefix: str) -> None:
        self.client, self.bucket, self.prefix = client, bucket, prefix

    def entries(self) -> Iterator[Entry | Problem]:
        return scan_remote(self.client, self.bucket, self.prefix)

    def whole(self, entry: Entry, into: memoryview) -> tuple[memoryview, Meta]:
        """A small object in one request; checked against its ETag by the client."""
        try:
            answer = self.client.get(self.bucket, self.prefix + entry.name, into=into)
        except ObjectNotFoundError:
            raise ChangedError("was removed before it was copied") from None
        data = (
            memoryview(answer.body) if answer.body else into[: int(answer.headers.get("content-length") or 0)]
        )
        return data, _meta(answer, entry.mtime)

    def open(self, entry: Entry) -> RemoteReading:
        return RemoteReading(self, entry)


class RemoteReading:
    """One version of an object, named by its ETag."""

    def __init__(self, reader: RemoteReader, entry: Entry) -> None:
        self._client, self._bucket, self._key = reader.client, reader.bucket, reader.prefix + entry.name
        head = self._client.head(self._bucket, self._key)
        if head is None:
            raise ChangedError("was removed before it was copied")
        self.etag = unquoted(head.headers.get("etag", ""))
        crc32 = head.headers.get(CRC32, "")
        self.crc32 = crc32 if checksum.is_whole_crc32(crc32) else ""
        self.size = int(head.headers.get("content-length") or 0)
        self.meta = _meta(head, entry.mtime)
        self.version = self.etag or f"{self.meta.mtime}"

    def read(self, start: int, into: memoryview) -> memoryview:
        try:
            answer = self._client.get(
                self._bucket, self._key, start=start, length=len(into), into=into, if_match=self.etag
            )
        except (PreconditionError, ObjectNotFoundError):
            raise ChangedError("changed while it was copied") from None
        if answer.body:
            into[:] = answer.body
        return into

    def pour(self, start: int, sink: Sink) -> None:
        """As `read`, piece by piece; the sink may be begun anew."""
        try:
            answer = self._client.get(
                self._bucket, self._key, start=start, length=sink.length, into=sink, if_match=self.etag
            )
        except (PreconditionError, ObjectNotFoundError):
            raise ChangedError("changed while it was copied") from None
        if answer.body:  # of a store that does not tell its length first
            sink.restart()
            sink.take(memoryview(answer.body))

    def settled(self) -> None:
        pass

    def close(self) -> None:
        pass

    def uploaded_part_size(self) -> int:
        """The part size this object was uploaded with, as the store tells it; 0 if it does not."""
        answer = self._client.head(self._bucket, self._key, {"partNumber": "1"})
        size = int(answer.headers.get("content-length") or 0) if answer else 0
        return size if size < self.size else 0


def _meta(answer: Answer, mtime: float) -> Meta:
    text = answer.headers.get("last-modified", "")
    if not mtime and text:
        from email.utils import parsedate_to_datetime  # seldom needed, and slow to load

        mtime = parsedate_to_datetime(text).timestamp()
    mode = answer.headers.get(MODE_HEADER, "")
    return Meta(mtime, int(mode, 8) if mode and all(c in "01234567" for c in mode) else None)


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
        wanted = etag = self._reading.etag
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


class RemoteWriter:
    def __init__(self, client: Client, bucket: str, prefix: str) -> None:
        self.client, self.bucket, self.prefix = client, bucket, prefix

    def problem(self, name: str) -> str:
        return remote_name_problem(self.prefix, name)

    def put(self, name: str, data: memoryview, meta: Meta) -> None:
        self.client.put(self.bucket, self.prefix + name, data, mode=meta.mode)

    def make_directory(self, name: str) -> None:
        self.client.put(self.bucket, self.prefix + name + "/", b"")

    def begin(self, name: str, reading: LocalReading | RemoteReading) -> RemoteWriting:
        return RemoteWriting(self, name, reading)

    def delete(self, entries: list[Entry], keep: set[str]) -> int:
        gone = [e for e in entries if not (e.is_directory and e.name in keep)]
        self.client.delete_many(self.bucket, [self.prefix + e.name + "/" * e.is_directory for e in gone])
        return len(gone)


class RemoteWriting:
    """A multipart upload. An unfinished one of the same key is continued: its parts are compared by MD5."""

    def __init__(self, writer: RemoteWriter, name: str, reading: LocalReading | RemoteReading) -> None:
        self._client, self._bucket, self._key = writer.client, writer.bucket, writer.prefix + name
        self._reading = reading
        self.part = part_size(reading.size)
        self.have: dict[int, bytes] = {}
        self._crc32s: dict[int, bytes] = {}
        """Of the parts of an upload that was begun with them; empty when it was not, or is not known to have been."""
        self._by_crc32 = False
        self._upload = self._client.find_multipart(self._bucket, self._key)
        if self._upload:
            self.have = self._intact()
        else:
            self._begin()

    def _begin(self) -> None:
        self._upload = self._client.start_multipart(self._bucket, self._key, self._reading.meta.mode)
        self._by_crc32 = self._client.speaks_crc32

    def _intact(self) -> dict[int, bytes]:
        try:
            there = self._client.parts(self._bucket, self._key, self._upload)
        except ObjectNotFoundError:
            there = {}
            self._begin()
        intact = {}
        buffer = memoryview(bytearray(min(self.part, self._reading.size)))
        for number, (size, md5) in there.items():
            start = (number - 1) * self.part
            if start < self._reading.size and size == min(self.part, self._reading.size - start):
                data = self._reading.read(start, buffer[:size])
                if checksum.md5(data).hex() == md5.lower():
                    intact[number - 1] = bytes.fromhex(md5)
        return intact

    def write(self, number: int, data: memoryview) -> bytes:
        query = {"partNumber": str(number + 1), "uploadId": self._upload}
        crc32 = checksum.crc32(data) if self._by_crc32 else None
        etag = self._client.put(self._bucket, self._key, data, query=query, crc32=crc32)
        if crc32:
            self._crc32s[number] = crc32
        return bytes.fromhex(etag) if is_md5(etag) else etag.encode()

    def finish(self, digests: list[bytes], *, verify: bool) -> bool:
        etags = [d.hex() if len(d) == 16 else d.decode() for d in digests]
        crc32 = b""
        if self._by_crc32 and self._client.speaks_crc32 and len(self._crc32s) == len(digests):
            lengths = [min(self.part, self._reading.size - n * self.part) for n in range(len(digests))]
            crc32 = checksum.joined_crc32([self._crc32s[n] for n in range(len(digests))], lengths)
        etag = self._client.finish_multipart(self._bucket, self._key, self._upload, etags, crc32)
        joined = checksum.md5(b"".join(digests)).hex()
        if all(len(d) == 16 for d in digests) and etag.endswith(f"-{len(digests)}"):
            if etag != f"{joined}-{len(digests)}":
                self._client.delete(self._bucket, self._key)
                raise ChecksumError(f"the store joined {self._bucket}/{self._key} wrongly", "copy it again")
            return True
        return False

    def suspend(self) -> None:
        """Leave the parts where they are: the next copy continues."""

    def discard(self) -> None:
        self._client.abort_multipart(self._bucket, self._key, self._upload)
