"""URLs: what a person writes for a place in a file system or an object store.

Pure: it looks at text only and never touches a disk or a network.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote

from .errors import UsageError

REMOTE_SCHEMES = ("obs", "s3")
MAX_KEY_BYTES = 1024


@dataclass(frozen=True)
class Location:
    """A place: a local path, or a key (or prefix) in a bucket. Keys are kept exactly as written."""

    scheme: str
    bucket: str = ""
    key: str = ""
    path: str = ""

    @property
    def is_remote(self) -> bool:
        return self.scheme != "file"

    @property
    def looks_like_directory(self) -> bool:
        """The text itself says directory: it ends with a slash, or is a bucket."""
        if self.is_remote:
            return not self.key or self.key.endswith("/")
        return self.path.endswith("/")

    @property
    def name(self) -> str:
        """The last component."""
        text = self.key if self.is_remote else self.path
        return text.rstrip("/").rsplit("/", 1)[-1]

    @property
    def prefix(self) -> str:
        """The key as a prefix of its children: empty for a bucket, else ending in a slash."""
        return self.key if not self.key or self.key.endswith("/") else self.key + "/"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}" if self.is_remote else self.path


def is_remote(text: str) -> bool:
    return text.startswith(("obs://", "s3://"))


def parse_url(text: str | os.PathLike[str]) -> Location:
    """Read a path or URL; raises `UsageError` for anything else than a path, file://, obs:// or s3://."""
    text = os.fspath(text)
    if not text:
        raise UsageError("empty path or URL", "give a path, file://, obs://BUCKET/KEY or s3://BUCKET/KEY")
    if "\0" in text:
        raise UsageError(f"path or URL {text!r} contains a NUL character", "remove it")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Location("file", path=text)
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise UsageError(f"file URL {text!r} names host {host!r}", "write file:///absolute/path")
        return Location("file", path="/" + unquote(path))
    if scheme not in REMOTE_SCHEMES:
        raise UsageError(f"unknown scheme {scheme!r} in {text!r}", "use a path, file://, obs:// or s3://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise UsageError(f"no bucket in {text!r}", f"write {scheme}://BUCKET/KEY")
    if bucket in (".", "..") or not all(c.isalnum() or c in "-._" for c in bucket):
        raise UsageError(
            f"bucket {bucket!r} in {text!r} is not a bucket name", "use letters, digits, '-' and '.'"
        )
    if len(key.encode("utf-8", "surrogateescape")) > MAX_KEY_BYTES:
        raise UsageError(f"key in {text[:80]!r}… is longer than {MAX_KEY_BYTES} bytes", "shorten it")
    return Location(scheme, bucket, key)
