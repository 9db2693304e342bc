"""The Tester's memory: tests, token hashes, results and verdicts in one SQLite file.

Every change is one transaction, so a kill at any moment leaves all of it or
none. It knows no HTTP and opens no result folder.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from trainshed.bench.judge.cross.alike import Turns
from trainshed.errors import NotFoundError, UsageError
from trainshed.tester.model import Stored, Test, checked_test, token_hash

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tests (
  id TEXT PRIMARY KEY, mode TEXT, model TEXT, division TEXT, scenario TEXT, object TEXT, participant TEXT,
  rules TEXT, max_results INTEGER, created REAL, closed INTEGER, token_hash TEXT, workload TEXT DEFAULT '',
  attested INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS results (
  test TEXT REFERENCES tests(id), upload TEXT, received REAL, files INTEGER, bytes INTEGER, signature TEXT,
  state TEXT, findings TEXT, summary TEXT, PRIMARY KEY (test, upload));
CREATE TABLE IF NOT EXISTS evidence (sha256 TEXT, test TEXT, upload TEXT, PRIMARY KEY (sha256, test, upload));
CREATE TABLE IF NOT EXISTS turns (test TEXT, upload TEXT, run INTEGER, count INTEGER, bits TEXT,
  PRIMARY KEY (test, upload, run));
"""
_TEST = (
    "id, mode, model, division, scenario, object, participant, rules, max_results, created, closed, workload, "
    "attested"
)
_RESULT = "test, upload, received, files, bytes, signature, state, findings, summary"


class Ledger:
    """One SQLite file; every call opens it again, so threads and commands may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.opened() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_SCHEMA)
            known = {row[1] for row in db.execute("PRAGMA table_info(tests)")}
            if "workload" not in known:
                db.execute("ALTER TABLE tests ADD COLUMN workload TEXT DEFAULT ''")
            if "attested" not in known:
                db.execute("ALTER TABLE tests ADD COLUMN attested INTEGER DEFAULT 0")
        path.chmod(0o600)

    def add_test(self, test: Test) -> str:
        """Register a test; gives its token, which is not kept and cannot be shown again."""
        test = replace(checked_test(test), created=time.time())
        token = secrets.token_urlsafe(32)
        values = [*(getattr(test, name) for name in _TEST.split(", ")), token_hash(token)]
        with self.opened() as db, db:
            try:
                marks = ",".join("?" * len(values))
                db.execute(f"INSERT INTO tests ({_TEST}, token_hash) VALUES ({marks})", values)  # noqa: S608
            except sqlite3.IntegrityError as error:
                raise UsageError(f"test {test.id} is already registered", "choose another id") from error
        return token

    def new_token(self, test: str) -> str:
        """Replace a test's token; the old one is worthless from now on."""
        token = secrets.token_urlsafe(32)
        self.test(test)
        with self.opened() as db, db:
            db.execute("UPDATE tests SET token_hash = ? WHERE id = ?", (token_hash(token), test))
        return token

    def close_test(self, test: str, closed: bool = True) -> None:
        self.test(test)
        with self.opened() as db, db:
            db.execute("UPDATE tests SET closed = ? WHERE id = ?", (int(closed), test))

    def test(self, name: str) -> Test:
        for test in self._tests("WHERE id = ?", (name,)):
            return test
        raise NotFoundError(f"no such test: {name!r}", "`trainshed tester tests` lists them")

    def tests(self) -> list[Test]:
        return list(self._tests("ORDER BY created, id", ()))

    def token_hash(self, test: str) -> str:
        """The hash of a test's token; of a test that does not exist, one that nothing matches."""
        with self.opened() as db:
            row = db.execute("SELECT token_hash FROM tests WHERE id = ?", (test,)).fetchone()
        return row[0] if row else ""

    def add_result(self, stored: Stored) -> Stored:
        """Keep a result that has arrived whole; the second time it is only looked up."""
        values = _row(stored)
        with self.opened() as db, db:
            db.execute(f"INSERT OR IGNORE INTO results VALUES ({','.join('?' * len(values))})", values)  # noqa: S608
        found = self.result(stored.test, stored.upload)
        assert found is not None
        return found

    def judge(self, stored: Stored, evidence: Iterable[str], turns: Sequence[Turns] = ()) -> None:
        """Write a verdict, and remember the evidence of a result that holds."""
        with self.opened() as db, db:
            db.execute(
                "UPDATE results SET state = ?, findings = ?, summary = ? WHERE test = ? AND upload = ?",
                (stored.state, *_row(stored)[7:], stored.test, stored.upload),
            )
            if stored.state != "failed":
                db.executemany(
                    "INSERT OR IGNORE INTO turns VALUES (?, ?, ?, ?, ?)",
                    [(stored.test, stored.upload, i, t.count, f"{t.bits:x}") for i, t in enumerate(turns)],
                )
                db.executemany(
                    "INSERT OR IGNORE INTO evidence VALUES (?, ?, ?)",
                    [(item, stored.test, stored.upload) for item in evidence],
                )

    def evidence_elsewhere(self, evidence: Iterable[str], stored: Stored) -> list[tuple[str, str]]:
        """Valid results that rest on the same evidence as this one: (test, upload)."""
        found: set[tuple[str, str]] = set()
        with self.opened() as db:
            for item in evidence:
                rows = db.execute("SELECT test, upload FROM evidence WHERE sha256 = ?", (item,)).fetchall()
                found |= {(test, upload) for test, upload in rows if test != stored.test}
        return sorted(found)

    def turns_elsewhere(self, stored: Stored) -> Iterator[tuple[str, Turns]]:
        """The step times of all results of other tests that hold, as turns: (test, turns of a run)."""
        with self.opened() as db:
            query = "SELECT test, count, bits FROM turns WHERE test != ?"
            for test, count, bits in db.execute(query, (stored.test,)):
                yield test, Turns(count, int(bits, 16))

    def result(self, test: str, upload: str) -> Stored | None:
        return next(self._results("WHERE test = ? AND upload = ?", (test, upload)), None)

    def results(self, test: str = "") -> list[Stored]:
        """Newest first."""
        return list(self._results("WHERE ? IN ('', test) ORDER BY received DESC, upload", (test,)))

    def unjudged(self) -> list[Stored]:
        return list(self._results("WHERE state = 'received' ORDER BY received", ()))

    def _tests(self, where: str, values: tuple[object, ...]) -> Iterator[Test]:
        with self.opened() as db:
            rows = db.execute(f"SELECT {_TEST} FROM tests {where}", values).fetchall()  # noqa: S608
        for row in rows:
            known = dict(zip(_TEST.split(", "), row, strict=True))
            yield Test(**(known | {name: bool(known[name]) for name in ("closed", "attested")}))

    def _results(self, where: str, values: tuple[object, ...]) -> Iterator[Stored]:
        with self.opened() as db:
            rows = db.execute(f"SELECT {_RESULT} FROM results {where}", values).fetchall()  # noqa: S608
        for row in rows:
            known = dict(zip(_RESULT.split(", "), row, strict=True))
            plain = {"findings": tuple(json.loads(row[7])), "summary": json.loads(row[8])}
            yield Stored(**(known | plain))

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The database, for one change or question."""
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            db.execute("PRAGMA synchronous=FULL")
            yield db


def _row(stored: Stored) -> list[object]:
    plain = [getattr(stored, name) for name in _RESULT.split(", ")[:7]]
    return [*plain, json.dumps(list(stored.findings)), json.dumps(stored.summary)]
