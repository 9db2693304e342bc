"""A listing of all objects below a prefix: page after page, or for large trees folder beside folder."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from queue import Full, Queue

from .s3.client import S3Client
from .s3.xml import Listed

FULL_PAGE = 1000
FILLED = 64
"""Objects in a folder that make a request for it alone worth while: sixteen such requests at once are then at
least as fast as whole pages one after another."""
AT_ONCE = 16


def listed(client: S3Client, bucket: str, prefix: str) -> Iterator[Listed]:
    """Every object once, in no promised order."""
    pages = client.pages(bucket, prefix)
    first = next(pages)
    folders = list(dict.fromkeys(_folder(item.key, prefix) for item in first if _folder(item.key, prefix)))
    if len(first) < FULL_PAGE or len(folders) < 2 or len(first) < FILLED * len(folders):
        yield from first
        for page in pages:
            yield from page
        return
    *whole, cut = folders  # the page may end in the middle of its last folder
    kept = [item for item in first if not item.key.startswith(cut)]
    yield from kept
    seen = {item.key for item in kept}
    level = list(client.listing(bucket, prefix, delimiter="/"))
    yield from (item for item in level if not item.is_prefix and item.key not in seen)
    yield from _side_by_side(client, bucket, [i.key for i in level if i.is_prefix and i.key not in whole])


def _folder(key: str, prefix: str) -> str:
    """The folder directly below the prefix that a key is in, with its slash; empty if it is in none."""
    return key[: key.find("/", len(prefix)) + 1]


def _side_by_side(client: S3Client, bucket: str, folders: list[str]) -> Iterator[Listed]:
    left, found, over = deque(folders), Queue(4 * AT_ONCE), threading.Event()  # type: ignore[var-annotated]

    def say(what: object) -> None:
        while not over.is_set():
            try:
                found.put(what, timeout=0.5)
                return
            except Full:
                continue

    def work() -> None:
        try:
            while left and not over.is_set():
                for page in client.pages(bucket, left.popleft()):
                    say(page)
            say(None)
        except IndexError:  # another one took the last folder
            say(None)
        except BaseException as error:
            say(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in folders[:AT_ONCE]]
    for thread in threads:
        thread.start()
    try:
        working = len(threads)
        while working:
            page = found.get()
            if isinstance(page, BaseException):
                raise page
            if page is None:
                working -= 1
            else:
                yield from page
    finally:
        over.set()
