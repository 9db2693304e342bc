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
    place = parse_url(url)
    if not place.is_remote:
        return os.path.lexists(place.path)
    with connected(place, credentials) as client:
        try:
            if not place.key:
                client.request("HEAD", place.bucket, "")
                return True
            if not place.key.endswith("/") and client.head(place.bucket, place.key) is not None:
                return True
            return any(True for _ in client.listing(place.bucket, place.prefix, limit=1))
        except ObjectNotFoundError:
            return False


def list_tree(url: str, *, credentials: Credentials | None = None) -> list[Entry]:
    """Every file below a directory or prefix, by relative name, with its empty directories.

    A single file or object is listed as itself. Raises `ObjectNotFoundError` if there is nothing.
    """
    place = parse_url(url)
    if not place.is_remote:
        path = Path(place.path)
        if path.is_dir():
            return [item for item in scan_local(place.path) if isinstance(item, Entry)]
        if not path.exists():
            raise ObjectNotFoundError(f"no such file or directory: {place.path}")
        info = path.stat()
        return [Entry(place.name, info.st_size, info.st_mtime)]
    with connected(place, credentials) as client:
        found = list(scan_remote(client, place.bucket, place.prefix))
        if found:
            return found
        if place.key and not place.key.endswith("/"):
            head = client.head(place.bucket, place.key)
            if head is not None:
                return [Entry(place.name, int(head.headers.get("content-length") or 0))]
        if place.key and not any(True for _ in client.listing(place.bucket, place.prefix, limit=1)):
            raise ObjectNotFoundError(f"nothing at {place}", "check bucket and prefix")
        return []


def list_level(url: str, *, credentials: Credentials | None = None) -> Iterator[Entry]:
    """What is directly in a directory, bucket or prefix; of a single file or object itself.

    Directories have neither size nor time: asking for them would mean to list all that is in them.
    """
    place = parse_url(url)
    if not place.is_remote:
        yield from _local_level(place)
        return
    with connected(place, credentials) as client:
        found = False
        for item in client.listing(place.bucket, place.prefix, delimiter="/"):
            found = True
            name = item.key[len(place.prefix) :]
            if name.rstrip("/"):
                is_directory = item.is_prefix or name.endswith("/")
                yield Entry(name.rstrip("/"), item.size, item.modified, is_directory=is_directory)
        if not found and place.key:
            yield from list_tree(url, credentials=credentials)


def _local_level(place: Location) -> Iterator[Entry]:
    path = Path(place.path)
    with explained(place.path):
        for item in sorted(path.iterdir()) if path.is_dir() else [path]:
            info = item.lstat()
            if item.is_dir():
                yield Entry(item.name, is_directory=True)
            else:
                yield Entry(item.name, info.st_size, info.st_mtime)


def read_bytes(url: str, *, credentials: Credentials | None = None) -> bytes:
    place = parse_url(url)
    if not place.is_remote:
        try:
            return Path(place.path).read_bytes()
        except FileNotFoundError as error:
            raise ObjectNotFoundError(f"no such file: {place.path}") from error
        except OSError as error:
            raise StoreError(
                f"cannot read {place.path}: {error.strerror}", "check the path and its rights"
            ) from error
    with connected(place, credentials) as client:
        return client.get(place.bucket, place.key).body


def cat(url: str, *, credentials: Credentials | None = None) -> Iterator[bytes]:
    """The bytes of a file or object, a piece at a time, all of one version."""
    from trainshed.payload.modelarts.trainshed_store.local_side import LocalReading
    from trainshed.payload.modelarts.trainshed_store.parts import PART, ChangedError
    from trainshed.payload.modelarts.trainshed_store.remote_side import RemoteReader, RemoteReading

    place = parse_url(url)

    def pieces(reading: LocalReading | RemoteReading) -> Iterator[bytes]:
        buffer = memoryview(bytearray(PART))
        try:
            for start in range(0, reading.size, PART):
                yield bytes(reading.read(start, buffer[: min(PART, reading.size - start)]))
        except ChangedError as error:
            raise StoreError(f"{place} {error}", "read it again") from error

    try:
        if not place.is_remote:
            yield from pieces(LocalReading(place.path))
            return
        with connected(place, credentials) as client:
            head = client.head(place.bucket, place.key)
            if head is None:
                raise ObjectNotFoundError(f"no object at {place}")
            if int(head.headers.get("content-length") or 0) <= PART:
                yield client.get(place.bucket, place.key).body
                return
            yield from pieces(RemoteReader(client, place.bucket, "").open(Entry(place.key)))
    except ChangedError as error:
        raise ObjectNotFoundError(f"no such file: {place}") from error


def write_bytes(url: str, data: bytes, *, credentials: Credentials | None = None) -> None:
    """Put bytes in place whole or not at all; parent directories are made."""
    place = parse_url(url)
    if place.looks_like_directory:
        raise UsageError(f"{place} names a directory", "name a file")
    if not place.is_remote:
        root = Root(os.path.dirname(place.path) or ".")  # noqa: PTH120
        try:
            root.write(place.name, data, 0, None)
        finally:
            root.close()
        return
    with connected(place, credentials) as client:
        client.put(place.bucket, place.key, data)


def remove(url: str, *, recursive: bool = False, credentials: Credentials | None = None) -> int:
    """Delete a file or object, or with `recursive` a tree. Returns how many; raises if there was none."""
    place = parse_url(url)
    if not place.is_remote:
        return _remove_local(place, recursive)
    with connected(place, credentials) as client:
        if place.key and not place.key.endswith("/") and client.head(place.bucket, place.key) is not None:
            client.delete(place.bucket, place.key)
            if not recursive:
                return 1
            gone = 1
        else:
            gone = 0
        keys = [item.key for item in client.listing(place.bucket, place.prefix, limit=0 if recursive else 2)]
        if not keys and not gone:
            raise ObjectNotFoundError(f"nothing at {place}", "check bucket and key")
        if not recursive and keys != [place.key]:
            raise UsageError(f"{place} is a directory", "add --recursive to delete all of it")
        client.delete_many(place.bucket, keys)
        return gone + len(keys)


def _remove_local(place: Location, recursive: bool) -> int:
    path = Path(place.path)
    if not os.path.lexists(place.path):
        raise ObjectNotFoundError(f"no such file or directory: {place.path}")
    with explained(place.path):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return 1
        if not recursive:
            raise UsageError(f"{place.path} is a directory", "add --recursive to delete all of it")
        count = sum(1 for _ in scan_local(place.path))
        from shutil import rmtree

        rmtree(place.path)
        return count


def disk_usage(url: str, *, credentials: Credentials | None = None) -> tuple[int, int]:
    """Files and bytes below a path or URL."""
    found = [entry for entry in list_tree(url, credentials=credentials) if not entry.is_directory]
    return len(found), sum(entry.size for entry in found)
