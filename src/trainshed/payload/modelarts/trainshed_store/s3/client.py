"""What S3 offers, as calls: objects, listings, parts; what is sent and fetched is checked.

It knows nothing of trees, files or copying.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from .. import checksum
from ..credentials import Credentials
from ..errors import (
    BucketNotFoundError,
    ChecksumError,
    ObjectNotFoundError,
    PreconditionError,
    StoreError,
)
from ..pool import Later
from . import xml
from .calls import Caller, Patience
from .signing import encode_path
from .wire import Answer, Sink, WireError

FOREIGN_CODES = {"NotImplemented", "InvalidArgument", "InvalidRequest", "UnsupportedArgument"}
MODE_HEADER = "x-amz-meta-trainshed-mode"
CRC32, CHECKSUM_MODE = "x-amz-checksum-crc32", "x-amz-checksum-mode"
WORTH_CRC32 = 64 * 1024  # below, MD5 costs less than a longer request


class S3Client(Caller):
    """One store. Safe to share between threads."""

    def __init__(self, credentials: Credentials, patience: Patience | None = None) -> None:
        super().__init__(credentials, patience)
        self.speaks_crc32 = True
        """Whether the store checks and keeps CRC-32s: believed until it answers without one."""

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes | bytearray | memoryview,
        *,
        query: Mapping[str, str] | None = None,
        mode: int | None = None,
        crc32: bytes | None = None,
    ) -> str:
        """Atomic put; the server verifies the upload and we verify its checksum. Returns the ETag."""
        by_crc32 = self.speaks_crc32
        digest = (crc32 or checksum.crc32(data)) if by_crc32 else checksum.md5(data)
        extra = {CRC32 if by_crc32 else "content-md5": checksum.to_header(digest)}
        if mode is not None:
            extra[MODE_HEADER] = f"{mode & 0o777:o}"

        def check(answer: Answer) -> None:
            etag = unquoted(answer.headers.get("etag", ""))
            if by_crc32 and CRC32 in answer.headers:
                same = answer.headers[CRC32] == extra[CRC32]
            else:
                self.speaks_crc32 = False
                md5 = checksum.md5(data) if by_crc32 else digest
                same = not _tells_md5(answer) or etag == md5.hex()
            if not same:
                raise ChecksumError(f"the store's bytes differ from those sent for {bucket}/{key}")

        try:
            answer = self.request("PUT", bucket, key, query=query, body=data, extra=extra, check=check)
        except StoreError as error:
            if not (by_crc32 and error.store_code in FOREIGN_CODES):
                raise
            self.speaks_crc32 = False  # it does not accept the header at all
            return self.put(bucket, key, data, query=query, mode=mode)
        if by_crc32 and CRC32 not in answer.headers and not _tells_md5(answer):
            return self.put(bucket, key, data, query=query, mode=mode)  # not verified: again with its MD5
        return unquoted(answer.headers.get("etag", ""))

    def get(
        self,
        bucket: str,
        key: str,
        *,
        start: int = 0,
        length: int | None = None,
        into: memoryview | Sink | None = None,
        if_match: str = "",
    ) -> Answer:
        """Fetch an object, or `length` bytes from `start`; a whole plain object is checked by ETag."""
        extra = {}
        if length is not None:
            extra["range"] = f"bytes={start}-{start + length - 1}"
        if if_match:
            extra["if-match"] = f'"{if_match}"'
        if length is None and isinstance(into, memoryview) and len(into) > WORTH_CRC32:
            extra[CHECKSUM_MODE] = "ENABLED"

        def check(answer: Answer) -> None:
            got = answer.headers.get("content-length", "")
            if length is not None and (answer.status != 206 or got != str(length)):
                raise WireError(f"asked for {length} bytes of {key}, got status {answer.status}, {got} bytes")
            etag = unquoted(answer.headers.get("etag", ""))
            if if_match and etag and etag != if_match:
                raise PreconditionError(f"{bucket}/{key} changed while it was read", "copy it again")
            if length is None:
                data: bytes | memoryview = answer.body
                if isinstance(into, memoryview) and not answer.body:
                    data = into[: int(got or 0)]
                crc32 = answer.headers.get(CRC32, "")
                if checksum.is_whole_crc32(crc32):
                    same = checksum.to_header(checksum.crc32(data)) == crc32
                else:
                    same = not _tells_md5(answer) or checksum.md5(data).hex() == etag
                if not same:
                    raise ChecksumError(f"bytes of {bucket}/{key} do not match its checksum {crc32 or etag}")

        return self.request("GET", bucket, key, extra=extra, into=into, check=check)

    def head(self, bucket: str, key: str, query: Mapping[str, str] | None = None) -> Answer | None:
        """Headers of an object, its checksum among them where there is one; None if there is no object."""
        try:
            return self.request("HEAD", bucket, key, query=query, extra={CHECKSUM_MODE: "ENABLED"})
        except ObjectNotFoundError:
            return None

    def listing(
        self, bucket: str, prefix: str, *, delimiter: str = "", limit: int = 0
    ) -> Iterator[xml.Listed]:
        """Objects (and with a delimiter, prefixes) in the store's order."""
        found = (item for page in self.pages(bucket, prefix, delimiter, limit) for item in page)
        return itertools.islice(found, limit or None)

    def pages(
        self, bucket: str, prefix: str, delimiter: str = "", limit: int = 0
    ) -> Iterator[list[xml.Listed]]:
        """A listing page by page; the store works on the next one while this one is read."""
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        if delimiter:
            query["delimiter"] = delimiter
        if limit:
            query["max-keys"] = str(min(limit, 1000))

        def page(token: str) -> bytes:
            more = {"continuation-token": token} if token else {}
            return self.request("GET", bucket, "", query={**query, **more}).body

        body = page("")
        while True:
            token = xml.next_token(body)
            following = Later(lambda token=token: page(token)) if token and not limit else None  # type: ignore[misc]
            yield xml.read_listing(body)
            if not token:
                return
            body = following.get() if following else page(token)

    def delete(self, bucket: str, key: str) -> None:
        self.request("DELETE", bucket, key)

    def delete_many(self, bucket: str, keys: list[str]) -> None:
        """Delete up to any number of keys, a thousand per request."""
        for start in range(0, len(keys), 1000):
            body = xml.delete_body(keys[start : start + 1000])
            extra = {"content-md5": checksum.to_header(checksum.md5(body))}
            answer = self.request("POST", bucket, "", query={"delete": ""}, body=body, extra=extra)
            failed = xml.first_delete_error(answer.body)
            if failed:
                raise StoreError(
                    f"cannot delete {bucket}/{failed[0]}: {failed[1]}", "see the store's permissions"
                )

    def copy_object(self, source: tuple[str, str], bucket: str, key: str) -> None:
        """Server-side copy inside one store."""
        extra = {"x-amz-copy-source": encode_path(f"/{source[0]}/{source[1]}")}
        answer = self.request("PUT", bucket, key, extra=extra)
        if b"<Error" in answer.body:  # S3 may answer 200 and then fail
            raise self.refusal(answer, bucket, key)

    def create_bucket(self, bucket: str) -> None:
        self.request("PUT", bucket, "")

    def has_bucket(self, bucket: str) -> bool:
        try:
            self.request("HEAD", bucket, "")
        except BucketNotFoundError:
            return False
        return True

    def buckets(self) -> list[str]:
        return xml.texts(self.request("GET", "", "").body, "Name")

    def start_multipart(self, bucket: str, key: str, mode: int | None = None) -> str:
        extra = {} if mode is None else {MODE_HEADER: f"{mode & 0o777:o}"}
        if self.speaks_crc32:
            extra.update({"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"})
        try:
            answer = self.request("POST", bucket, key, query={"uploads": ""}, extra=extra)
        except StoreError as error:
            if not (self.speaks_crc32 and error.store_code in FOREIGN_CODES):
                raise
            self.speaks_crc32 = False
            return self.start_multipart(bucket, key, mode)
        if answer.headers.get("x-amz-checksum-algorithm", "").upper() != "CRC32":
            self.speaks_crc32 = False
        upload = xml.texts(answer.body, "UploadId")
        if not upload:
            raise StoreError(
                f"the store did not start an upload of {bucket}/{key}", "is the endpoint an S3 store?"
            )
        return upload[0]

    def find_multipart(self, bucket: str, key: str) -> str:
        """The newest unfinished upload of exactly this key, or an empty string."""
        query = {"uploads": "", "prefix": key, "encoding-type": "url"}
        try:
            answer = self.request("GET", bucket, "", query=query)
        except BucketNotFoundError:
            return ""  # SeaweedFS makes it when an upload begins; other stores refuse that
        return xml.newest_upload(answer.body, key)

    def parts(self, bucket: str, key: str, upload: str) -> dict[int, tuple[int, str]]:
        """Parts the store already has: number → (size, MD5)."""
        found: dict[int, tuple[int, str]] = {}
        marker = ""
        while True:
            query = {"uploadId": upload}
            if marker:
                query["part-number-marker"] = marker
            body = self.request("GET", bucket, key, query=query).body
            found.update(xml.read_parts(body))
            following = xml.texts(body, "NextPartNumberMarker")
            if xml.texts(body, "IsTruncated") != ["true"] or not following or following[0] == marker:
                return found
            marker = following[0]

    def finish_multipart(
        self, bucket: str, key: str, upload: str, etags: list[str], crc32: bytes = b""
    ) -> str:
        """Put the parts together; with their joined CRC-32 the store checks and keeps it."""
        body = xml.complete_body(etags)
        extra = {CRC32: checksum.to_header(crc32), "x-amz-checksum-type": "FULL_OBJECT"} if crc32 else None
        answer = self.request("POST", bucket, key, query={"uploadId": upload}, body=body, extra=extra)
        if b"<Error" in answer.body:
            raise self.refusal(answer, bucket, key)
        return unquoted(next(iter(xml.texts(answer.body, "ETag")), ""))

    def abort_multipart(self, bucket: str, key: str, upload: str) -> None:
        try:
            self.request("DELETE", bucket, key, query={"uploadId": upload})
        except ObjectNotFoundError:
            pass


def _tells_md5(answer: Answer) -> bool:
    return is_md5(unquoted(answer.headers.get("etag", ""))) and not is_encrypted(answer)


def is_encrypted(answer: Answer) -> bool:
    """Whether the object is under its own key: its ETag then looks like an MD5 but is not."""
    header = answer.headers.get("x-amz-server-side-encryption", "")
    return "kms" in header or "x-amz-server-side-encryption-customer-algorithm" in answer.headers


def unquoted(etag: str) -> str:
    return etag.strip().strip('"').lower()


def is_md5(etag: str) -> bool:
    return len(etag) == 32 and all(c in "0123456789abcdef" for c in etag)
