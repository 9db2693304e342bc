"""The one copy: a file or a tree, any direction, verified, resumable, and honest about what it could not do.

`copy` decides what to move; `local_side` and `remote_side` know how each end is read and written; `pool` how much at once.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .credentials import Credentials, required
from .errors import CopyError, ObjectNotFoundError, StoreError, TrainshedError, UsageError
from .local import Root
from .local_side import LocalReader, LocalWriter
from .location import Location, parse_url
from .names import Names, above
from .pool import Later, Pool
from .progress import CopySummary, Progress
from .remote_side import RemoteReader, RemoteWriter
from .s3.calls import Patience
from .s3.client import S3Client
from .same import SAME_CLOCK, SKEW, is_same
from .transfer import CopyLedger, FileTransfer
from .tree import Entry, Problem, scan_local, scan_remote

PARTS_LOCAL, PARTS_REMOTE = 6, 16  # of large files at once: a store on this machine shares its cores with us
LIGHT = 1 << 20  # larger files are moved by few workers, since each is held in memory


def copy(
    src: str,
    dst: str,
    *,
    delete: bool = False,
    progress: Callable[[Progress], None] | None = None,
    credentials: Credentials | None = None,
    source_credentials: Credentials | None = None,
    verify: bool = True,
    force: bool = False,
    follow_links: bool = False,
    empty_ok: bool = False,
    only: Iterable[str] | None = None,
    patience: Patience | None = None,
    resolve: Callable[[str], Credentials] = required,
) -> CopySummary:
    """Copy a file to a file (or into a directory), or the contents of a directory into a directory.

    What is already there unchanged is skipped, so a second call resumes; `force` copies it again. `delete`
    removes what the source has not, after everything else succeeded. `only` limits a tree to these relative
    names. Where no credentials are passed, `resolve` is asked for those of the URL's scheme. Raises `ObjectNotFoundError` for a missing source (an empty prefix is one, unless `empty_ok`) and
    `CopyError`, with the summary so far, when the copy had to stop.
    """
    source, target = parse_url(src), parse_url(dst)
    job = _Job(source, target, credentials, source_credentials or credentials, patience, resolve)
    try:
        return job.run(
            delete=delete,
            progress=progress,
            verify=verify,
            force=force,
            follow_links=follow_links,
            empty_ok=empty_ok,
            only=None if only is None else {name.lstrip("/") for name in only},
        )
    finally:
        job.close()


class _Job:
    """One call of `copy`: both ends opened, the source listed, work handed to the pool."""

    def __init__(
        self,
        source: Location,
        target: Location,
        credentials: Credentials | None,
        source_credentials: Credentials | None,
        patience: Patience | None,
        resolve: Callable[[str], Credentials],
    ) -> None:
        self.source, self.target = source, target
        self._resolve = resolve
        self._clients: dict[Credentials, S3Client] = {}
        self._patience = patience
        self._from = self._client(source, source_credentials)
        self._to = self._client(target, credentials)
        self._root: Root | None = None
        self._started = time.monotonic()
        self._total = [0, 0]
        self._listing = True
        self._skipped = self._deleted = 0
        self._ledger = CopyLedger()
        self._is_local = all(client.is_local for client in self._clients.values())
        self._skew = SAME_CLOCK if self._is_local else SKEW

    def _client(self, location: Location, credentials: Credentials | None) -> S3Client | None:
        if not location.is_remote:
            return None
        found = credentials or self._resolve(location.scheme)
        if found not in self._clients:
            self._clients[found] = S3Client(found, self._patience)
        return self._clients[found]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        if self._root:
            self._root.close()

    def run(
        self,
        *,
        delete: bool,
        progress: Callable[[Progress], None] | None,
        verify: bool,
        force: bool,
        follow_links: bool,
        empty_ok: bool,
        only: set[str] | None,
    ) -> CopySummary:
        single = self._is_single()
        if delete and (single or only is not None):
            raise UsageError("--delete works on whole directories only", "copy a directory, or leave it out")
        self._refuse_overlap(single, delete)
        heavy = PARTS_LOCAL if self._is_local else PARTS_REMOTE
        pool = Pool(lambda: progress(self._progress(pool)) if progress else None, heavy)
        for client in self._clients.values():
            client.on_pressure = pool.ease
        reader = self._reader(single, follow_links)
        writer, out_name = self._writer(single)
        transfer = FileTransfer(reader, writer, pool, self._ledger, verify=verify)
        have: dict[str, Entry] = {}
        try:
            try:
                if single:
                    name = self.source.name
                    size = self._single_size
                    self._plan(pool, transfer, Entry(name, size), out_name)
                else:
                    # Both ends are listed at the same time.
                    existing = Later(self._destination)
                    entries = reader.entries()
                    early = list(_while(lambda: not existing.is_done, entries))
                    have = existing.get()
                    found = itertools.chain(early, entries)
                    names = self._plan_tree(
                        pool, transfer, reader, found, have, force=force, only=only, delete=delete
                    )
                    if not names and self.source.is_remote and not empty_ok:
                        self._require_something()
                self._listing = False
            except BaseException as error:
                pool.abandon(error)
            pool.finish()
            if delete:
                self._deleted += self._delete_stale(writer, names, have)
        except (TrainshedError, OSError) as error:
            transfer.suspend()
            if isinstance(error, (ObjectNotFoundError, UsageError)) and not pool.files:
                raise
            raise self._stopped(error, pool) from error
        except BaseException:
            transfer.suspend()
            raise
        if progress:
            progress(self._progress(pool))
        return self._summary(pool)

    def _is_single(self) -> bool:
        """Whether the source is one file; raises if there is nothing."""
        location = self.source
        self._single_size = 0
        if self._from is None:
            if Path(location.path).is_dir():
                return False
            if not Path(location.path).exists():
                raise ObjectNotFoundError(f"no such file or directory: {location.path}")
            if not Path(location.path).is_file():
                raise UsageError(
                    f"{location.path} is neither a file nor a directory", "copy files or directories"
                )
            self._single_size = Path(location.path).stat().st_size
            return True
        if location.looks_like_directory:
            return False
        head = self._from.head(location.bucket, location.key)
        if head is None:
            return False
        self._single_size = int(head.headers.get("content-length") or 0)
        return True

    def _require_something(self) -> None:
        location = self.source
        if self._from and not any(
            True for _ in self._from.listing(location.bucket, location.prefix, limit=1)
        ):
            raise ObjectNotFoundError(f"nothing at {location}", "check bucket and prefix")

    def _refuse_overlap(self, single: bool, delete: bool) -> None:
        a, b = self.source, self.target
        if a.is_remote != b.is_remote or (
            a.is_remote and (a.bucket != b.bucket or self._from is not self._to)
        ):
            return
        if a.is_remote:
            left, right = (a.key, b.key) if single else (a.prefix, b.prefix)
        else:
            left, right = (os.path.realpath(p.path).rstrip("/") + "/" for p in (a, b))
        if left == right or (not single and right.startswith(left)):
            raise UsageError(f"{b} is the same as or inside {a}", "choose a destination outside the source")
        if delete and left.startswith(right):
            raise UsageError(f"{a} is inside {b}, where --delete would remove it", "leave --delete out")

    def _reader(self, single: bool, follow_links: bool) -> LocalReader | RemoteReader:
        location = self.source
        if self._from is None:
            root = os.path.dirname(location.path) if single else location.path  # noqa: PTH120
            return LocalReader(root or ".", follow_links=follow_links)
        prefix = location.key[: len(location.key) - len(location.name)] if single else location.prefix
        return RemoteReader(self._from, location.bucket, prefix)

    def _writer(self, single: bool) -> tuple[LocalWriter | RemoteWriter, str]:
        """The destination and, for a single file, its name there."""
        location = self.target
        into = (
            not single
            or location.looks_like_directory
            or (not location.is_remote and Path(location.path).is_dir())
        )
        if self._to is not None:
            if into:
                return RemoteWriter(self._to, location.bucket, location.prefix), self.source.name
            prefix = location.key[: len(location.key) - len(location.name)]
            return RemoteWriter(self._to, location.bucket, prefix), location.name
        directory = location.path if into else os.path.dirname(location.path) or "."  # noqa: PTH120
        self._root = Root(directory)
        return LocalWriter(self._root), self.source.name if into else location.name

    def _destination(self) -> dict[str, Entry]:
        location = self.target
        if self._to is None:
            found = scan_local(location.path)
            return {e.name: e for e in found if isinstance(e, Entry)}
        try:
            return {e.name: e for e in scan_remote(self._to, location.bucket, location.prefix)}
        except ObjectNotFoundError:
            return {}  # the bucket may be made by the first write

    def _plan_tree(
        self,
        pool: Pool,
        transfer: FileTransfer,
        reader: LocalReader | RemoteReader,
        entries: Iterable[Entry | Problem],
        have: dict[str, Entry],
        *,
        force: bool,
        only: set[str] | None,
        delete: bool,
    ) -> Names:
        names = Names(self._root.path if self._root else "")
        clearing = delete and self._root is not None
        folders = {folder for name in have for folder in above(name)} if clearing else None
        late = []
        for item in entries:
            if pool.error:
                break
            if isinstance(item, Problem):
                names.unknown.add(item.name)
                self._ledger.unrepresentable.append(item)
                continue
            if only is not None and item.name not in only:
                continue
            if self._root and item.size == 0 and not item.is_directory:
                late.append(item)  # may turn out to be a directory in disguise
                continue
            self._consider(pool, transfer, reader, item, have, names, folders, force=force)
        for item in late:
            self._consider(pool, transfer, reader, item, have, names, folders, force=force)
        if only is not None:
            for missing in sorted(only - names.files):
                self._ledger.unrepresentable.append(Problem(missing, "is not in the source"))
        return names

    def _consider(
        self,
        pool: Pool,
        transfer: FileTransfer,
        reader: LocalReader | RemoteReader,
        item: Entry,
        have: dict[str, Entry],
        names: Names,
        folders: set[str] | None,
        *,
        force: bool,
    ) -> None:
        reason = transfer.writer.problem(item.name) or (names.clash(item) if self._root else "")
        if item.is_directory and item.size:
            reason = reason or "is a directory marker with content"
        if reason:
            names.unknown.add(item.name)
            self._ledger.unrepresentable.append(Problem(item.name, reason))
            return
        names.add(item)
        existing = have.get(item.name)
        if folders is not None:
            self._clear_the_way(transfer, item, have, folders)
        if item.is_directory:
            if not (existing and existing.is_directory):
                pool.submit(lambda: transfer.writer.make_directory(item.name))
        elif (
            existing
            and not existing.is_directory
            and not force
            and is_same(reader, item, existing, self.target, self._skew)
        ):
            self._skipped += 1
        else:
            self._plan(pool, transfer, item, item.name)

    def _clear_the_way(
        self, transfer: FileTransfer, item: Entry, have: dict[str, Entry], folders: set[str]
    ) -> None:
        """With --delete, what is of the wrong kind at the destination goes first."""
        wrong = [have[p] for p in above(item.name) if p in have and not have[p].is_directory]
        if not item.is_directory and item.name in folders:
            wrong += [e for n, e in have.items() if n.startswith(item.name + "/")]
        existing = have.get(item.name)
        if existing and existing.is_directory != item.is_directory:
            wrong.append(existing)
        if wrong:
            self._deleted += transfer.writer.delete(wrong, set())
            for entry in wrong:
                have.pop(entry.name, None)

    def _plan(self, pool: Pool, transfer: FileTransfer, item: Entry, name: str) -> None:
        self._total[0] += 1
        self._total[1] += item.size
        pool.submit(lambda: transfer.file(item, name), heavy=item.size > LIGHT)

    def _delete_stale(self, writer: LocalWriter | RemoteWriter, names: Names, have: dict[str, Entry]) -> int:
        stale = [
            e
            for n, e in have.items()
            if n not in names.files
            and not names.is_unknown(n)
            and not (e.is_directory and n in names.directories)
        ]
        return writer.delete(stale, names.directories) if stale else 0

    def _progress(self, pool: Pool) -> Progress:
        elapsed = time.monotonic() - self._started
        return Progress(pool.files, pool.bytes, self._total[0], self._total[1], elapsed, self._listing)

    def _summary(self, pool: Pool) -> CopySummary:
        return CopySummary(
            pool.files,
            self._ledger.bytes,
            self._skipped,
            self._deleted,
            time.monotonic() - self._started,
            sum(client.retries for client in self._clients.values()),
            tuple(self._ledger.unrepresentable),
            tuple(self._ledger.unstable),
            tuple(self._ledger.unverified),
        )

    def _stopped(self, error: Exception, pool: Pool) -> CopyError:
        summary = self._summary(pool)
        known = isinstance(error, TrainshedError)
        reason = error.message if isinstance(error, TrainshedError) else str(error)
        done = f"{summary.files} files ({summary.bytes} bytes) finished, {summary.skipped} unchanged before"
        return CopyError(
            f"copy {self.source} → {self.target} stopped: {reason}; {done}",
            (error.hint if isinstance(error, TrainshedError) else "") or "the same command again resumes",
            code=error.code if known and isinstance(error, StoreError) else "",
            summary=summary,
        )


def _while(goes_on: Callable[[], bool], items: Iterator[Entry | Problem]) -> Iterator[Entry | Problem]:
    """Items for as long as the condition holds: the next one is asked for only then."""
    while goes_on():
        try:
            yield next(items)
        except StopIteration:
            return
