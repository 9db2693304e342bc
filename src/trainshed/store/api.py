"""Small operations on a path or URL: look, list, read, write, remove."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.errors import UsageError
from trainshed.payload.modelarts.trainshed_store.credentials import Credentials
from trainshed.payload.modelarts.trainshed_store.errors import ObjectNotFoundError, StoreError
from trainshed.payload.modelarts.trainshed_store.local import Root, explained
from trainshed.payload.modelarts.trainshed_store.location import Location, parse_url
from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.payload.modelarts.trainshed_store.tree import Entry, scan_local, scan_remote


@contextmanager
def connected(place: Location, credentials: Credentials | None) -> Iterator[S3Client]:
    """A client for a URL; a URL needs keys, and they are the caller's to give."""
    if credentials is None:
        raise UsageError(f"no keys for {place}", "pass credentials, as a Client's StoreAccess gives them")
    client = S3Client(credentials)
    try:
        yield client
    finally:
        client.close()


def exists(url: str, *, credentials: Credentials | None = None) -> bool:
    """Whether a file, directory, object, marker or non-empty prefix is there."""
    location = parse_url(url)
    if not location.is_remote:
        return os.path.lexists(location.path)
    with connected(location, credentials) as client:
        try:
            if not location.key:
                client.request("HEAD", location.bucket, "")
                return True
            if not location.key.endswith("/") and client.head(location.bucket, location.key) is not None:
                return True
            return any(True for _ in client.listing(location.bucket, location.prefix, limit=1))
        except ObjectNotFoundError:
            return False


def list_tree(url: str, *, credentials: Credentials | None = None) -> list[Entry]:
    """Every file below a directory or prefix, by relative name, with its empty directories.

    A single file or object is listed as itself. Raises `ObjectNotFoundError` if there is nothing.
    """
    location = parse_url(url)
    if not location.is_remote:
        path = Path(location.path)
        if path.is_dir():
            return [item for item in scan_local(location.path) if isinstance(item, Entry)]
        if not path.exists():
            raise ObjectNotFoundError(f"no such file or directory: {location.path}")
        info = path.stat()
        return [Entry(location.name, info.st_size, info.st_mtime)]
    with connected(location, credentials) as client:
        found = list(scan_remote(client, location.bucket, location.prefix))
        if found:
            return found
        if location.key and not location.key.endswith("/"):
            head = client.head(location.bucket, location.key)
            if head is not None:
                return [Entry(location.name, int(head.headers.get("content-length") or 0))]
        if location.key and not any(True for _ in client.listing(location.bucket, location.prefix, limit=1)):
            raise ObjectNotFoundError(f"nothing at {location}", "check bucket and prefix")
        return []


def list_level(url: str, *, credentials: Credentials | None = None) -> Iterator[Entry]:
    """What is directly in a directory, bucket or prefix; of a single file or object itself.

    Directories have neither size nor time: asking for them would mean to list all that is in them.
    """
    location = parse_url(url)
    if not location.is_remote:
        yield from _local_level(location)
        return
    with connected(location, credentials) as client:
        found = False
        for item in client.listing(location.bucket, location.prefix, delimiter="/"):
            found = True
            name = item.key[len(location.prefix) :]
            if name.rstrip("/"):
                is_directory = item.is_prefix or name.endswith("/")
                yield Entry(name.rstrip("/"), item.size, item.modified, is_directory=is_directory)
        if not found and location.key:
            yield from list_tree(url, credentials=credentials)


def _local_level(location: Location) -> Iterator[Entry]:
    path = Path(location.path)
    with explained(location.path):
        for item in sorted(path.iterdir()) if path.is_dir() else [path]:
            info = item.lstat()
            if item.is_dir():
                yield Entry(item.name, is_directory=True)
            else:
                yield Entry(item.name, info.st_size, info.st_mtime)


def read_bytes(url: str, *, credentials: Credentials | None = None) -> bytes:
    location = parse_url(url)
    if not location.is_remote:
        try:
            return Path(location.path).read_bytes()
        except FileNotFoundError as error:
            raise ObjectNotFoundError(f"no such file: {location.path}") from error
        except OSError as error:
            raise StoreError(
                f"cannot read {location.path}: {error.strerror}", "check the path and its permissions"
            ) from error
    with connected(location, credentials) as client:
        return client.get(location.bucket, location.key).body


def cat(url: str, *, credentials: Credentials | None = None) -> Iterator[bytes]:
    """The bytes of a file or object, a piece at a time, all of one version."""
    from trainshed.payload.modelarts.trainshed_store.local_side import LocalReading
    from trainshed.payload.modelarts.trainshed_store.parts import PART, ChangedError
    from trainshed.payload.modelarts.trainshed_store.remote_side import RemoteReader, RemoteReading

    location = parse_url(url)

    def pieces(reading: LocalReading | RemoteReading) -> Iterator[bytes]:
        buffer = memoryview(bytearray(PART))
        try:
            for start in range(0, reading.size, PART):
                yield bytes(reading.read(start, buffer[: min(PART, reading.size - start)]))
        except ChangedError as error:
            raise StoreError(f"{location} {error}", "read it again") from error

    try:
        if not location.is_remote:
            yield from pieces(LocalReading(location.path))
            return
        with connected(location, credentials) as client:
            head = client.head(location.bucket, location.key)
            if head is None:
                raise ObjectNotFoundError(f"no object at {location}")
            if int(head.headers.get("content-length") or 0) <= PART:
                yield client.get(location.bucket, location.key).body
                return
            yield from pieces(RemoteReader(client, location.bucket, "").open(Entry(location.key)))
    except ChangedError as error:
        raise ObjectNotFoundError(f"no such file: {location}") from error


def write_bytes(url: str, data: bytes, *, credentials: Credentials | None = None) -> None:
    """Atomic write; parent directories are created."""
    location = parse_url(url)
    if location.looks_like_directory:
        raise UsageError(f"{location} names a directory", "name a file")
    if not location.is_remote:
        root = Root(os.path.dirname(location.path) or ".")  # noqa: PTH120
        try:
            root.write(location.name, data, 0, None)
        finally:
            root.close()
        return
    with connected(location, credentials) as client:
        client.put(location.bucket, location.key, data)


def remove(url: str, *, recursive: bool = False, credentials: Credentials | None = None) -> int:
    """Delete a file or object, or with `recursive` a tree. Returns how many; raises if there was none."""
    location = parse_url(url)
    if not location.is_remote:
        return _remove_local(location, recursive)
    with connected(location, credentials) as client:
        if (
            location.key
            and not location.key.endswith("/")
            and client.head(location.bucket, location.key) is not None
        ):
            client.delete(location.bucket, location.key)
            if not recursive:
                return 1
            gone = 1
        else:
            gone = 0
        keys = [
            item.key for item in client.listing(location.bucket, location.prefix, limit=0 if recursive else 2)
        ]
        if not keys and not gone:
            raise ObjectNotFoundError(f"nothing at {location}", "check bucket and key")
        if not recursive and keys != [location.key]:
            raise UsageError(f"{location} is a directory", "add --recursive to delete all of it")
        client.delete_many(location.bucket, keys)
        return gone + len(keys)


def _remove_local(location: Location, recursive: bool) -> int:
    path = Path(location.path)
    if not os.path.lexists(location.path):
        raise ObjectNotFoundError(f"no such file or directory: {location.path}")
    with explained(location.path):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return 1
        if not recursive:
            raise UsageError(f"{location.path} is a directory", "add --recursive to delete all of it")
        count = sum(1 for _ in scan_local(location.path))
        from shutil import rmtree

        rmtree(location.path)
        return count


def disk_usage(url: str, *, credentials: Credentials | None = None) -> tuple[int, int]:
    """Files and bytes below a path or URL."""
    found = [entry for entry in list_tree(url, credentials=credentials) if not entry.is_directory]
    return len(found), sum(entry.size for entry in found)
