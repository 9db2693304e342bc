"""What the Tester saw while runs were made: nonces it gave out, and heads of chains with its own time.

Only ever appended to, and bounded in number and rate. It knows no HTTP and judges nothing.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from trainshed.tester.ledger import Ledger
from trainshed.tester.model import Refusal

NONCES_A_RESULT = 50
"""How many nonces a test gives out for each result that it takes: a result has several runs, and some fail."""
NONCES_AN_HOUR = 500
MOST_HEADS = 10_000
"""Of one run. Records of a long run come less often, so that a month has fewer."""
MOST_TEST_HEADS = 1_000_000
SHORTEST_PAUSE = 0.5
"""Seconds between two heads of one run."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS nonces (nonce TEXT PRIMARY KEY, test TEXT REFERENCES tests(id), issued REAL,
  closed INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS heads (nonce TEXT, seq INTEGER, digest TEXT, received REAL, PRIMARY KEY (nonce, seq));
CREATE TABLE IF NOT EXISTS nonce_uses (nonce TEXT, upload TEXT, digest TEXT, PRIMARY KEY (nonce, upload));
CREATE INDEX IF NOT EXISTS nonces_of_test ON nonces (test, issued);
"""


@dataclass(frozen=True)
class SeenHead:
    """The hash of a chain's record, and when the Tester got it by its own clock."""

    seq: int
    digest: str
    received: float


@dataclass(frozen=True)
class Witnessed:
    """One nonce: when it was given out, the heads that came, and the results that rest on it."""

    nonce: str
    issued: float
    heads: tuple[SeenHead, ...] = ()
    uses: tuple[tuple[str, str], ...] = ()
    """(upload, hash of the chain's last record)."""


class HeadBook:
    """The part of a ledger that is written while runs go on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        with ledger.opened() as db:
            db.executescript(_SCHEMA)

    def issue(self, test: str) -> str:
        """A nonce for one run that is about to begin."""
        entry = self._ledger.test(test)
        if entry.closed:
            raise Refusal(409, "closed", f"test {test} is closed")
        now, nonce = time.time(), secrets.token_hex(16)
        with self._ledger.opened() as db, db:
            count = "SELECT count(*) FROM nonces WHERE test = ? AND issued > ?"
            (total,), (lately,) = (db.execute(count, (test, t)).fetchone() for t in (0.0, now - 3600))
            if total >= NONCES_A_RESULT * entry.max_results:
                raise Refusal(409, "enough-nonces", f"test {test} has given out all of its {total} nonces")
            if lately >= NONCES_AN_HOUR:
                raise Refusal(429, "too-often", f"{lately} nonces were asked for within an hour; wait")
            db.execute("INSERT INTO nonces (nonce, test, issued) VALUES (?, ?, ?)", (nonce, test, now))
        return nonce

    def take(self, test: str, nonce: str, seq: int, digest: str, closed: bool) -> float:
        """Note a head; gives when it came. The same head again changes nothing."""
        now = time.time()
        with self._ledger.opened() as db, db:
            db.execute("BEGIN IMMEDIATE")
            row = db.execute("SELECT test, closed FROM nonces WHERE nonce = ?", (nonce,)).fetchone()
            if row is None or row[0] != test:
                raise Refusal(404, "no-such-nonce", "this nonce was not given out for this test")
            known = db.execute("SELECT digest, received FROM heads WHERE nonce = ? AND seq = ?", (nonce, seq))
            for same, received in known:
                if same == digest:
                    return float(received)
                raise Refusal(409, "nonce-used", "another run's head has come for this nonce and record")
            last, before, count = db.execute(
                "SELECT max(seq), max(received), count(*) FROM heads WHERE nonce = ?", (nonce,)
            ).fetchone()
            if row[1] or (last is not None and seq < last):
                raise Refusal(409, "head-order", "later heads of this chain have come, or its last")
            if before is not None and now - before < SHORTEST_PAUSE:
                raise Refusal(429, "too-often", f"send a head every {SHORTEST_PAUSE} s at most")
            (total,) = (
                db.execute(
                    "SELECT count(*) FROM heads WHERE nonce IN (SELECT nonce FROM nonces WHERE test = ?)",
                    (test,),
                ).fetchone()
                if count % 100 == 0
                else (0,)
            )
            if count >= MOST_HEADS or total >= MOST_TEST_HEADS:
                raise Refusal(409, "enough-heads", f"no more than {MOST_HEADS} heads of a run are kept")
            db.execute("INSERT INTO heads VALUES (?, ?, ?, ?)", (nonce, seq, digest, now))
            if closed:
                db.execute("UPDATE nonces SET closed = 1 WHERE nonce = ?", (nonce,))
        return now

    def witnessed(self, test: str, nonce: str) -> Witnessed | None:
        """What is known of a nonce; None if it was not given out for this test."""
        with self._ledger.opened() as db:
            row = db.execute(
                "SELECT issued FROM nonces WHERE nonce = ? AND test = ?", (nonce, test)
            ).fetchone()
            if row is None:
                return None
            heads = db.execute(
                "SELECT seq, digest, received FROM heads WHERE nonce = ? ORDER BY seq", (nonce,)
            ).fetchall()
            uses = db.execute("SELECT upload, digest FROM nonce_uses WHERE nonce = ?", (nonce,)).fetchall()
        return Witnessed(nonce, row[0], tuple(SeenHead(*head) for head in heads), tuple(uses))

    def use(self, nonce: str, upload: str, digest: str) -> None:
        """A result rests on this nonce."""
        with self._ledger.opened() as db, db:
            db.execute("INSERT OR REPLACE INTO nonce_uses VALUES (?, ?, ?)", (nonce, upload, digest))

    def unused(self, test: str, before: float) -> int:
        """Runs that were begun before a moment, of which heads came and which are in no result."""
        with self._ledger.opened() as db:
            (count,) = db.execute(
                "SELECT count(*) FROM nonces n WHERE test = ? AND issued < ?"
                " AND EXISTS (SELECT 1 FROM heads h WHERE h.nonce = n.nonce)"
                " AND NOT EXISTS (SELECT 1 FROM nonce_uses u WHERE u.nonce = n.nonce)",
                (test, before),
            ).fetchone()
        return int(count)
