"""The Tester as a witness: nonces, heads, and results held against what it saw."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import made
import pytest
from chained import PATH, rebuilt, rechained
from served import Served

from trainshed.bench import manifest
from trainshed.bench.folder import collect
from trainshed.bench.judge.check import check
from trainshed.runs import chain
from trainshed.runs.chain import VERSION
from trainshed.tester import attest, headbook
from trainshed.tester.client import RefusedByTester, TesterClient
from trainshed.tester.headbook import HeadBook, SeenHead, Witnessed

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening]

DIGEST = "a" * 64
OFFSET = 7_000_000.0
"""Seconds by which the Tester's clock is ahead of the made runs'."""
RULES = made.made_rules(
    nodes=1, ranks=1, dataset=made.DatasetRule(name="made", checksum=made.CHECKSUM, eval_samples=400)
)


def ask(served: Served, path: str, token: str, **fields: object) -> tuple[int, dict[str, object]]:
    body = json.dumps({"chain": VERSION} | fields).encode()
    status, answer, _ = served.ask("POST", f"/api/v1/tests/t1/nonces{path}", body, token)
    return status, answer


def head(served: Served, token: str, nonce: object, seq: object, digest: str = DIGEST) -> tuple[int, object]:
    status, answer = ask(served, f"/{nonce}/heads", token, seq=seq, digest=digest, closed=False)
    return status, answer.get("error")


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headbook, "SHORTEST_PAUSE", 0.0)


def test_heads_are_noted_once_in_order_with_the_testers_time(served: Served, unhurried: None) -> None:
    token = served.add("t1")
    status, answer = ask(served, "", token)
    nonce = str(answer["nonce"])
    assert status == 200 and chain.is_nonce(nonce)
    assert head(served, token, nonce, 0) == (200, None)
    assert head(served, token, nonce, 4, "b" * 64) == (200, None)
    assert head(served, token, nonce, 4, "b" * 64) == (200, None), "an answer may be lost"
    assert head(served, token, nonce, 4, "c" * 64) == (409, "nonce-used")
    assert head(served, token, nonce, 3) == (409, "head-order")
    closing = ask(served, f"/{nonce}/heads", token, seq=9, digest=DIGEST, closed=True)
    assert closing[0] == 200
    assert head(served, token, nonce, 10) == (409, "head-order")
    seen = served.tester.book.witnessed("t1", nonce)
    assert seen is not None and [h.seq for h in seen.heads] == [0, 4, 9]
    assert seen.issued <= seen.heads[0].received <= seen.heads[-1].received == closing[1]["received"]


def test_what_is_no_head_is_refused(served: Served) -> None:
    token = served.add("t1")
    other = served.add("t2")
    nonce = ask(served, "", token)[1]["nonce"]
    assert ask(served, "", other)[0] == 403
    assert head(served, token, "0" * 32, 0) == (404, "no-such-nonce")
    for seq in (-1, 1.0, True, "0", None, 10**9):
        assert head(served, token, nonce, seq) == (400, "head")
    assert head(served, token, nonce, 0, "zz") == (400, "head")
    assert ask(served, "", token, chain=2)[1]["error"] == "chain-format"
    for body in (b"", b"[1]", b"{", b"[" * 900):
        assert served.ask("POST", "/api/v1/tests/t1/nonces", body, token)[0] == 400
    assert served.ask("POST", "/api/v1/tests/t1/nonces", b" " * 2000, token)[0] == 413


def test_nonces_and_heads_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    token = served.add("t1", max_results=1)
    nonce = ask(served, "", token)[1]["nonce"]
    monkeypatch.setattr(headbook, "SHORTEST_PAUSE", 1000.0)
    assert head(served, token, nonce, 0)[0] == 200
    assert head(served, token, nonce, 1) == (429, "too-often")
    monkeypatch.setattr(headbook, "SHORTEST_PAUSE", 0.0)
    monkeypatch.setattr(headbook, "MOST_HEADS", 1)
    assert head(served, token, nonce, 1) == (409, "enough-heads")
    monkeypatch.setattr(headbook, "NONCES_AN_HOUR", 1)
    assert ask(served, "", token)[1]["error"] == "too-often"
    monkeypatch.setattr(headbook, "NONCES_A_RESULT", 1)
    assert ask(served, "", token)[1]["error"] == "enough-nonces"
    served.tester.ledger.close_test("t1")
    assert ask(served, "", token)[1]["error"] == "closed"


def test_a_tester_of_another_release_is_refused_in_one_sentence(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = served.add("t1")
    monkeypatch.setattr("trainshed.tester.server.CHAIN_VERSION", 2)
    with (
        TesterClient(served.url, "t1", token) as client,
        pytest.raises(RefusedByTester, match="another release"),
    ):
        client.nonce()


def watched_result(tmp: Path, book: HeadBook, test: str) -> Path:
    """A result of three runs that were begun with nonces; no head has come yet."""
    runs = [
        made.MadeRun(nodes=1, per_node=1, seed=i, steps=2000, epochs=10, step=0.1 + i / 1000)
        for i in (1, 2, 3)
    ]
    for run in runs:
        run.nonce, run.train_samples = book.issue(test), 40_000
        run.accuracies = tuple(0.6 + epoch / 40 for epoch in range(10))
    return made.made_result(tmp, RULES, runs, chained=True)


def show(served: Served, folder: Path, every: int = 4, stretch: float = 1.0) -> None:
    """The Tester is shown the heads of each run, as if it had happened while they were made."""
    with served.tester.ledger.opened() as db, db:
        for path in sorted(folder.glob(f"runs/*/{PATH}")):
            found = chain.read(path.read_bytes())
            first = found.records[0].time
            rows = [
                (found.nonce, r.seq, r.digest, first + (r.time - first) * stretch + OFFSET)
                for r in found.records
                if r.seq % every == 0 or r.key
            ]
            db.executemany("INSERT INTO heads VALUES (?, ?, ?, ?)", rows)
            db.execute("UPDATE nonces SET issued = ? WHERE nonce = ?", (first + OFFSET - 10, found.nonce))


@pytest.fixture
def attested(served: Served, tmp_path: Path) -> Path:
    """An honest result; t1 takes only those that the Tester saw."""
    served.add("t1", attested=True, object="single", rules=RULES.model_dump_json(), workload="")
    return watched_result(tmp_path / "honest", served.tester.book, "t1")


def test_an_honest_result_holds_and_is_shown_as_attested(served: Served, attested: Path) -> None:
    show(served, attested)
    assert check(attested).findings == []
    assert served.findings("t1", attested) == {}
    (stored,) = served.tester.ledger.results("t1")
    assert stored.summary["attestation"].startswith("attested: ") and stored.state == "valid"
    assert "attested: " in served.ask("GET", f"/results/t1/{stored.upload}")[2]
    # The same runs, collected again: another upload, no other run.
    (attested / "note.txt").write_text("collected again")
    manifest.write(attested)
    assert served.findings("t1", attested) == {}


def test_discarded_runs_are_counted(served: Served, attested: Path, unhurried: None) -> None:
    nonce = served.tester.book.issue("t1")
    served.tester.book.take("t1", nonce, 0, DIGEST, False)
    show(served, attested)
    assert served.findings("t1", attested) == {}
    (stored,) = served.tester.ledger.results("t1")
    assert "runs-discarded" in {w["code"] for w in stored.summary["warnings"]}


def test_an_offline_result_says_so_and_is_refused_where_the_test_asks_for_more(
    served: Served, result: Path
) -> None:
    served.add("t1", attested=True)
    assert set(served.findings("t1", result)) == {"not-attested"}
    assert served.findings("t2", result) == {}
    (stored,) = served.tester.ledger.results("t2")
    assert stored.summary["attestation"] == "not attested: made without a Tester"
    assert json.loads((result / "result.json").read_text())["attestation"] == stored.summary["attestation"]
    assert "not attested: made without a Tester" in (result / "report.md").read_text()


def relabelled(folder: Path, served: Served) -> None:
    """Run 1 under a nonce that was given out, but whose run never was: all files agree."""
    nonce = served.tester.book.issue("t1")
    old = chain.read((folder / f"runs/1/{PATH}").read_bytes()).nonce
    for name in ("submit", "end"):
        path = folder / f"runs/1/events/{name}.jsonl"
        path.write_text(path.read_text().replace(old, nonce))
    rebuilt(1, lambda records: records[0].update(nonce=nonce))(folder)
    rechained(folder, 1)


def foreign(folder: Path, served: Served) -> None:
    served.add("t3", object="single")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served.tester.book, "issue", lambda _: other)
        other = HeadBook(served.tester.ledger).issue("t3")
        relabelled(folder, served)


def rebuilt_afterwards(folder: Path, _: Served) -> None:
    rebuilt(1, lambda records: records[3].update(time=records[3]["time"] + 0.5))(folder)


def cut_off(folder: Path, _: Served) -> None:
    rebuilt(1, lambda records: records.__delitem__(slice(20, -1)))(folder)


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (relabelled, "heads-missing"),
        (foreign, "nonce-unknown"),
        (rebuilt_afterwards, "head-differs"),
        (cut_off, "head-differs"),
    ],
)
def test_a_result_that_is_not_what_was_seen_is_refused_by_name(
    lie: Callable[[Path, Served], None], code: str, served: Served, attested: Path
) -> None:
    show(served, attested)
    lie(attested, served)
    shutil.rmtree(attested.parent / "source")  # whoever lies has no other evidence
    collect(attested)
    manifest.write(attested)
    assert code in served.findings("t1", attested)


def test_a_nonce_is_of_one_run(served: Served, attested: Path, tmp_path: Path) -> None:
    show(served, attested)
    again = Path(shutil.copytree(attested, tmp_path / "again"))
    assert served.findings("t1", attested) == {}
    rebuilt_afterwards(again, served)
    manifest.write(again)
    assert {"nonce-reused", "head-differs"} <= set(served.findings("t1", again))


def test_heads_that_came_at_another_pace_or_with_a_gap_are_named(served: Served, attested: Path) -> None:
    show(served, attested, stretch=1.5)
    assert set(served.findings("t1", attested)) == {"head-time"}


def test_heads_that_came_only_at_the_ends_are_named(served: Served, attested: Path) -> None:
    show(served, attested, every=10_000)
    assert set(served.findings("t1", attested)) == {"head-gap"}


def submitted_run(seconds: int = 300, **more: object) -> attest.SubmittedRun:
    records = tuple((f"{i:064x}", 1000.0 + i) for i in range(0, seconds))
    return attest.SubmittedRun(1, "n", records, **more)  # type: ignore[arg-type]


def seen_of(handed: attest.SubmittedRun, seqs: range, issued: float = 990.0, late: float = 0.0) -> Witnessed:
    heads = (SeenHead(s, handed.records[s][0], handed.records[s][1] + late) for s in seqs)
    return Witnessed("n", issued, tuple(heads))


def codes(handed: attest.SubmittedRun, seen: Witnessed) -> list[str]:
    return [code for code, _ in attest.attest([handed], lambda _: seen, "u", True)]


def test_gaps_delays_and_times_are_tolerated_up_to_their_limits() -> None:
    chain = submitted_run(submitted=995.0, finished=1301.0)
    assert codes(chain, seen_of(chain, range(0, 300, 3))) == []
    assert codes(chain, seen_of(chain, range(0, 300, 149), late=5000.0, issued=5990.0)) == []
    assert codes(chain, seen_of(chain, range(0, 100, 3))) == ["head-gap"]
    assert codes(chain, seen_of(chain, range(200, 300, 3))) == ["head-gap"]
    early = submitted_run(submitted=800.0, finished=1301.0)
    assert codes(early, seen_of(early, range(0, 300, 3))) == ["head-time"]
    late = submitted_run(submitted=995.0, finished=1500.0)
    assert codes(late, seen_of(late, range(0, 300, 3))) == ["head-time"]
    twice = list(attest.attest([chain, chain], lambda _: seen_of(chain, range(0, 300, 3)), "u", True))
    assert {code for code, _ in twice} == {"nonce-reused"}


def test_every_rule_of_the_tester_stands_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "judging.md").read_text()
    assert all(f"| `{code}` |" in text for code in attest.CODES)
