"""The chain: what the evidence of a run was, noted every few seconds while it was made.

Each node hashes the files it writes as they grow. The coordinator gathers the
heads (name, length, SHA-256 of the first N bytes) into records of one file,
`node-0/chain-<attempt>.jsonl`. A record holds the hash of the record before it
and an HMAC with a key that is drawn at the start: the first record holds the
key's hash, the last one the key. So anyone who has seen a record's hash knows
everything that was there at that moment, and a Tester that was sent it while
the run went on has its own witness. A record is one write: a kill leaves
a chain that holds up to its last whole line.

It says what is noted, not what is believed: `bench.judge` and the Tester judge.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1
NONCE_LABEL = "trainshed/tester-nonce"
"""The label of a run that a Tester watches: what the Tester gave out before the run began."""
PERIOD = 3.0
"""Seconds between two records, at the least."""
COVERED = re.compile(
    r"(job\.yaml|plan\.json|events/(submit|driver-\d{1,6}|coordinator-\d{1,6}|node-\d{1,6}-\d{1,6})\.jsonl"
    r"|node-\d{1,6}/(metrics|power|meter-rank-\d{1,9})\.jsonl|node-\d{1,6}/rank-[\w-]{1,60}\.log)\Z"
)
"""The files that a chain covers, by their names in the run directory. All of them only grow."""
MOST_BYTES = 256 << 20
"""Of one file: a longer file cannot be kept as evidence of a result."""
MOST_RECORDS = 20_000

_BYTES_A_SECOND = 2000
"""How fast a chain may grow: records of a large run come less often."""
_SHARE = 1000
"""The pause between records is at least this part of the time that the run has taken."""
_LATEST = 1 << 40
"""No time is later, so that everything can be calculated with it."""
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_NONCE = re.compile(r"[0-9a-f]{32}\Z")
_MAC = re.compile(rb',"mac":"([0-9a-f]{64})"\}\Z')
_MAC_BYTES = 74


class ChainError(ValueError):
    """A chain that is not one: damaged, changed, or of another release."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first N bytes of a file have this SHA-256."""

    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a chain."""

    seq: int
    time: float
    previous: str
    heads: Mapping[str, Head]
    digest: str
    """SHA-256 of the line: what the next record and a Tester know it by."""
    key: str = ""
    """Only in the last record: what all records were signed with."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain that was read and found unbroken."""

    run: str
    nonce: str
    records: tuple[Record, ...]

    @property
    def is_closed(self) -> bool:
        return bool(self.records[-1].key)


def path_of(attempt: int) -> str:
    """Where the chain of an attempt is in the run directory."""
    return f"node-0/chain-{attempt}.jsonl"


def is_nonce(text: str) -> bool:
    return bool(_NONCE.match(text))


def is_hash(text: str) -> bool:
    return bool(_HASH.match(text))


def pause(size: int, elapsed: float) -> float:
    """Seconds to wait after a record of `size` bytes, so that a chain stays small however long and large a run is."""
    return max(PERIOD, size / _BYTES_A_SECOND, elapsed / _SHARE)


class ChainWriter:
    """Writes one chain; OSError when it cannot, after which nothing more is written."""

    def __init__(self, path: Path, run: str, nonce: str, at: float) -> None:
        self._key = secrets.token_bytes(32)
        self._seq, self._previous = 0, ""
        # Never into a chain that somebody else began.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._handle: int | None = os.open(path, flags, 0o644)
        self._write({"run": run, "nonce": nonce, "commitment": hashlib.sha256(self._key).hexdigest()}, {}, at)

    def append(self, heads: Mapping[str, Head], at: float) -> int:
        """Add a record; gives its size."""
        return self._write({}, heads, at)

    def close(self, heads: Mapping[str, Head], at: float) -> None:
        """Add the last record, which shows the key."""
        self._write({"key": self._key.hex()}, heads, at)
        self._end()

    def _write(self, more: Mapping[str, str], heads: Mapping[str, Head], at: float) -> int:
        if self._handle is None:
            return 0
        noted = {name: [head.length, head.sha256] for name, head in sorted(heads.items())}
        fields = {"v": VERSION, "seq": self._seq, "time": round(at, 3), "prev": self._previous, **more}
        body = json.dumps(fields | {"heads": noted}, separators=(",", ":")).encode()
        line = body[:-1] + b',"mac":"' + _mac(self._key, body).encode() + b'"}'
        try:
            if os.write(self._handle, line + b"\n") != len(line) + 1:
                raise OSError(28, "No space left on device")
        except OSError:
            self._end()  # half a line: nothing may follow it
            raise
        self._seq, self._previous = self._seq + 1, hashlib.sha256(line).hexdigest()
        return len(line)

    def _end(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read(data: bytes) -> Chain:
    """The chain of a file; ChainError says where it is broken. An unfinished last line is left out."""
    if not 1 <= (count := data.count(b"\n")) <= MOST_RECORDS:
        raise ChainError(f"it has {count} whole records, 1 to {MOST_RECORDS} are read")
    lines = data.split(b"\n")[:-1]
    records: list[Record] = []
    opening: dict[str, Any] = {}
    for number, line in enumerate(lines):
        fields, record = _record(line, number)
        if number == 0:
            opening = fields
        if record.previous != (records[-1].digest if records else ""):
            raise ChainError(f"record {number} does not follow the one before it")
        if record.key and number < len(lines) - 1:
            raise ChainError(f"records follow record {number}, which closed it")
        records.append(record)
    run, nonce, commitment = (opening.get(name) for name in ("run", "nonce", "commitment"))
    is_text = all(isinstance(value, str) for value in (run, nonce, commitment))
    if not is_text or records[0].heads:
        raise ChainError("its first record does not open it")
    if records[-1].key:
        _check_signatures(lines, bytes.fromhex(records[-1].key), str(commitment))
    return Chain(str(run), str(nonce), tuple(records))


def _record(line: bytes, number: int) -> tuple[dict[str, Any], Record]:
    try:
        fields = json.loads(line)
        if fields["v"] != VERSION:
            found = fields["v"]
            raise ChainError(f"it is of format {found!s:.20}, this release reads {VERSION}")
        heads = {
            name: Head(length, sha256) for name, (length, sha256) in fields["heads"].items() if _is_name(name)
        }
        at, key = fields["time"], fields.get("key", "")
        good = (
            type(fields["seq"]) is int
            and fields["seq"] == number
            and isinstance(at, int | float)
            and abs(at) < _LATEST
            and isinstance(fields["prev"], str)
            and (key == "" or (isinstance(key, str) and is_hash(key)))
            and _MAC.search(line) is not None
            and all(
                type(h.length) is int and h.length >= 0 and is_hash(str(h.sha256)) for h in heads.values()
            )
        )
    except ChainError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ChainError(f"record {number} cannot be read: {type(error).__name__}") from error
    if not good:
        raise ChainError(f"record {number} is not as this release writes it")
    return fields, Record(number, float(at), fields["prev"], heads, hashlib.sha256(line).hexdigest(), key)


def _is_name(name: object) -> bool:
    if not isinstance(name, str) or not COVERED.match(name):
        raise ChainError(f"it names {name!s:.80}, which no chain covers")
    return True


def _check_signatures(lines: list[bytes], key: bytes, commitment: str) -> None:
    if hashlib.sha256(key).hexdigest() != commitment:
        raise ChainError("its last record shows another key than the first promised")
    for number, line in enumerate(lines):
        body, mac = line[:-_MAC_BYTES] + b"}", line[-_MAC_BYTES + 8 : -2].decode("ascii", "replace")
        if not hmac.compare_digest(mac, _mac(key, body)):
            raise ChainError(f"record {number} was not signed with the chain's key")


def _mac(key: bytes, body: bytes) -> str:
    return hmac.new(key, body, "sha256").hexdigest()


@dataclass(slots=True)
class GrowingFile:
    """The running hash of one file that only grows."""

    length: int = 0
    _state: Any = field(default_factory=hashlib.sha256)

    def read_on(self, path: Path, most: int = MOST_BYTES) -> Head | None:
        """Its head after what was appended since the last time, up to `most` bytes of it; None if nothing was.

        A pipe, a link or a file that is not there is nothing: a job may have laid it there.
        """
        before = self.length
        for block in _blocks(path, before, min(MOST_BYTES, before + most)):
            self._state.update(block)
            self.length += len(block)
        return Head(self.length, self._state.hexdigest()) if self.length > before else None


def _blocks(path: Path, start: int, end: int) -> Iterator[bytes]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            while start < end and (block := os.pread(handle, min(1 << 20, end - start), start)):
                start += len(block)
                yield block
    except OSError:
        return  # what cannot be read now is read the next time
    finally:
        os.close(handle)


def prefixes(data: bytes, lengths: list[int]) -> Iterator[tuple[int, str]]:
    """(length, SHA-256) of the first N bytes, for rising lengths, in one pass."""
    state, at, view = hashlib.sha256(), 0, memoryview(data)
    for length in lengths:
        state.update(view[at:length])
        at = length
        yield length, state.hexdigest()
