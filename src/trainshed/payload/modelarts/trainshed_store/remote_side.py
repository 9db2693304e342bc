"""The end of a copy that is a prefix in a bucket, read and written in parts.

Reading pins a version, by its ETag: bytes of two versions are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import checksum
from .errors import ChecksumError, ObjectNotFoundError, PreconditionError
from .parts import ChangedError, Meta, part_size
from .s3.client import CRC32, MODE_HEADER, S3Client, is_encrypted, is_md5, unquoted
from .s3.wire import Answer, Sink
from .tree import Entry, Problem, remote_name_problem, scan_remote

if TYPE_CHECKING:
    from .local_side import LocalReading


class RemoteReader:
    def __init__(self, client: S3Client, bucket: str, prefix: str) -> None:
        self.client, self.bucket, self.prefix = client, bucket, prefix

    def entries(self) -> Iterator[Entry | Problem]:
        return scan_remote(self.client, self.bucket, self.prefix)

    def whole(self, entry: Entry, into: memoryview) -> tuple[memoryview, Meta]:
        """A small object in one request; checked against its ETag by the client."""
        try:
            answer = self.client.get(self.bucket, self.prefix + entry.name, into=into)
        except ObjectNotFoundError as error:
            raise ChangedError("was removed before it was copied") from error
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
        self.is_local = self._client.is_local
        self.etag = unquoted(head.headers.get("etag", ""))
        self.md5 = "" if is_encrypted(head) else self.etag
        """The ETag where it depends on the bytes: an MD5, or one of the MD5s of its parts."""
        crc32 = head.headers.get(CRC32, "")
        self.crc32 = crc32 if checksum.is_whole_crc32(crc32) else ""
        self.size = int(head.headers.get("content-length") or 0)
        self.meta = _meta(head, entry.mtime)
        self.version = self.etag or f"{self.meta.mtime}"

    def read(self, start: int, into: memoryview) -> memoryview:
        self._range(start, len(into), into)
        return into

    def pour(self, start: int, sink: Sink) -> None:
        """As `read`, piece by piece; the sink may be begun again."""
        self._range(start, sink.length, sink)

    def _range(self, start: int, length: int, into: memoryview | Sink) -> None:
        try:
            self._client.get(
                self._bucket, self._key, start=start, length=length, into=into, if_match=self.etag
            )
        except (PreconditionError, ObjectNotFoundError) as error:
            raise ChangedError("changed while it was copied") from error

    def settled(self) -> None:
        pass

    def close(self) -> None:
        pass

    def uploaded_part_size(self) -> int:
        """The part size this object was uploaded with, as the store reports it; 0 if it does not."""
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


class RemoteWriter:
    def __init__(self, client: S3Client, bucket: str, prefix: str) -> None:
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
            uploaded = self._client.parts(self._bucket, self._key, self._upload)
        except ObjectNotFoundError:
            uploaded = {}
            self._begin()
        intact = {}
        buffer = memoryview(bytearray(min(self.part, self._reading.size)))
        for number, (size, md5) in uploaded.items():
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
                raise ChecksumError(
                    f"the store assembled {self._bucket}/{self._key} incorrectly", "copy it again"
                )
            return True
        return False

    def suspend(self) -> None:
        """Leave the parts where they are: the next copy continues."""

    def discard(self) -> None:
        self._client.abort_multipart(self._bucket, self._key, self._upload)
