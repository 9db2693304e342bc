"""Moving one file: whole if small, in parts if large; tried again if it changed under our hands."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from .errors import ChecksumError, ObjectNotFoundError
from .local_side import LocalReader, LocalReading, LocalWriter, LocalWriting
from .parts import PART, ChangedError
from .pool import Pool
from .remote_side import RemoteReader, RemoteReading, RemoteWriter, RemoteWriting
from .tree import Entry, Problem

TRIES = 3
SMALL = 64 * 1024
PIECE = 256 * 1024  # stays in a core's cache while it is summed and written
SERVER_COPY_LIMIT = 5 << 30


@dataclass
class CopyLedger:
    """What is reported afterwards. Lists are only appended to, which threads may do."""

    bytes: int = 0
    unrepresentable: list[Problem] = field(default_factory=list)
    unstable: list[Problem] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)


class FileTransfer:
    """Moves files from a reader to a writer on a pool's workers."""

    def __init__(
        self,
        reader: LocalReader | RemoteReader,
        writer: LocalWriter | RemoteWriter,
        pool: Pool,
        ledger: CopyLedger,
        *,
        verify: bool,
    ) -> None:
        self.reader, self.writer = reader, writer
        self.pool, self.ledger, self.verify = pool, ledger, verify
        self.lock = threading.Lock()
        self.open: set[_Large] = set()
        self._buffers = threading.local()
        self._server_side = (
            isinstance(reader, RemoteReader)
            and isinstance(writer, RemoteWriter)
            and reader.client.credentials == writer.client.credentials
        )

    def buffer(self, size: int) -> memoryview:
        """This thread's buffer: kept, and made larger when needed."""
        found: memoryview | None = getattr(self._buffers, "view", None)
        if found is None or len(found) < size:
            found = self._buffers.view = memoryview(bytearray(max(size, SMALL)))
        return found[:size]

    def file(self, entry: Entry, name: str) -> None:
        for attempt in range(1, TRIES + 1):
            try:
                self._move(entry, name)
                return
            except ChangedError as error:
                if attempt == TRIES:
                    self.ledger.unstable.append(Problem(entry.name, str(error)))

    def _move(self, entry: Entry, name: str) -> None:
        reader = self.reader
        if isinstance(reader, RemoteReader):
            if self._server_side and entry.size <= SERVER_COPY_LIMIT:
                self._copy_in_store(reader, entry, name)
                return
            if entry.size <= PART:
                data, meta = reader.whole(entry, self.buffer(entry.size))
                self.writer.put(name, data, meta)
                self.done(len(data), len(data))
                return
            self.start(entry, name, reader.open(entry))
            return
        reading = reader.open(entry)
        if reading.size > PART:
            self.start(entry, name, reading)
            return
        try:
            data = reading.read(0, self.buffer(reading.size))
            reading.settled()
            meta = reading.meta
        finally:
            reading.close()
        self.writer.put(name, data, meta)
        self.done(len(data), len(data))

    def _copy_in_store(self, reader: RemoteReader, entry: Entry, name: str) -> None:
        assert isinstance(self.writer, RemoteWriter)
        try:
            source = (reader.bucket, reader.prefix + entry.name)
            self.writer.client.copy_object(source, self.writer.bucket, self.writer.prefix + name)
        except ObjectNotFoundError as error:
            raise ChangedError("was removed before it was copied") from error
        self.done(entry.size, entry.size)

    def start(self, entry: Entry, name: str, reading: LocalReading | RemoteReading, attempt: int = 1) -> None:
        """Open a large file and queue its parts."""
        try:
            large = _Large(self, entry, name, reading, attempt)
        except BaseException:
            reading.close()
            raise
        with self.lock:
            self.open.add(large)
        large.queue()

    def done(self, size: int, fresh: int) -> None:
        with self.lock:
            self.ledger.bytes += size
        self.pool.count(1, fresh)

    def suspend(self) -> None:
        """Leave large files unfinished but resumable."""
        with self.lock:
            left, self.open = self.open, set()
        for large in left:
            large.suspend()


class _Large:
    """One large file under way: parts in any order, the last one finishes it."""

    def __init__(
        self,
        transfer: FileTransfer,
        entry: Entry,
        name: str,
        reading: LocalReading | RemoteReading,
        attempt: int,
    ) -> None:
        self._transfer, self._entry, self._name = transfer, entry, name
        self._reading, self._attempt = reading, attempt
        self._writing: LocalWriting | RemoteWriting = transfer.writer.begin(name, reading)
        count = -(-reading.size // self._writing.part)
        self._digests: list[bytes] = [self._writing.have.get(n, b"") for n in range(count)]
        self._missing = [n for n in range(count) if not self._digests[n]]
        self._left = len(self._missing)
        self._lock = threading.Lock()
        self._over = False

    def queue(self) -> None:
        present = self._reading.size - sum(self._length(n) for n in self._missing)
        self._transfer.pool.count(0, present)
        if not self._missing:
            self._finish()
            return
        self._transfer.pool.submit_heavy([lambda n=n: self._part(n) for n in self._missing])  # type: ignore[misc]

    def _length(self, number: int) -> int:
        return min(self._writing.part, self._reading.size - number * self._writing.part)

    def _part(self, number: int) -> None:
        if self._over:
            return
        length = self._length(number)
        try:
            self._digests[number] = self._move(number, length)
        except ChangedError as error:
            self._changed(error)
            return
        self._transfer.pool.count(0, length)
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._finish()

    def _move(self, number: int, length: int) -> bytes:
        reading, writing = self._reading, self._writing
        if isinstance(reading, RemoteReading) and isinstance(writing, LocalWriting):
            return writing.fetch(number, reading, self._transfer.buffer(PIECE))
        return writing.write(number, reading.read(number * writing.part, self._transfer.buffer(length)))

    def _finish(self) -> None:
        transfer = self._transfer
        try:
            self._reading.settled()
            verified = self._writing.finish(self._digests, verify=transfer.verify)
        except ChangedError as error:
            self._changed(error)
            return
        except ChecksumError:
            self._end()
            if self._attempt == TRIES:
                raise
            transfer.pool.count(0, -self._reading.size)
            transfer.start(self._entry, self._name, transfer.reader.open(self._entry), self._attempt + 1)
            return
        self._end()
        if not verified and transfer.verify:
            transfer.ledger.unverified.append(self._entry.name)
        transfer.done(self._reading.size, 0)

    def _changed(self, error: ChangedError) -> None:
        """Give this version up, once: begin again with the new one, or say that it will not hold still."""
        with self._lock:
            if self._over:
                return
            self._over = True
        transfer = self._transfer
        with transfer.lock:
            transfer.open.discard(self)
        self._writing.discard()
        self._reading.close()
        if self._attempt == TRIES:
            transfer.ledger.unstable.append(Problem(self._entry.name, str(error)))
            return
        try:
            transfer.start(self._entry, self._name, transfer.reader.open(self._entry), self._attempt + 1)
        except ChangedError as again:
            transfer.ledger.unstable.append(Problem(self._entry.name, str(again)))

    def _end(self) -> None:
        self._over = True
        with self._transfer.lock:
            self._transfer.open.discard(self)
        self._reading.close()

    def suspend(self) -> None:
        self._over = True
        self._writing.suspend()
        self._reading.close()
